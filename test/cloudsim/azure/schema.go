// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// computeModule is where the models of virtual machines are.
const computeModule = "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

// schema is what the source of an SDK's models says of JSON bodies.
type schema struct {
	structs map[string]map[string]property // by type and JSON name
	enums   map[string][]string
}

// property is one member of an object.
type property struct {
	kind               ast.Expr
	required, readOnly bool
}

// computeSchema reads the SDK's source once.
var computeSchema = sync.OnceValues(func() (*schema, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", computeModule).Output()
	if err != nil {
		return nil, fmt.Errorf("find the source of %s: %w", computeModule, err)
	}
	return readSchema(strings.TrimSpace(string(out)))
})

func readSchema(dir string) (*schema, error) {
	s := &schema{structs: map[string]map[string]property{}, enums: map[string][]string{}}
	parse := func(name string) (*ast.File, error) {
		return parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
	}
	models, err := parse("models.go")
	if err != nil {
		return nil, err
	}
	serde, err := parse("models_serde.go")
	if err != nil {
		return nil, err
	}
	constants, err := parse("constants.go")
	if err != nil {
		return nil, err
	}
	fields := structFields(models)
	for name, members := range jsonNames(serde) {
		s.structs[name] = map[string]property{}
		for json, field := range members {
			s.structs[name][json] = fields[name][field]
		}
	}
	for name := range enumTypes(constants) {
		s.enums[name] = enumValues(constants, name)
	}
	return s, nil
}

// structFields returns the fields of every struct by name.
func structFields(file *ast.File) map[string]map[string]property {
	all := map[string]map[string]property{}
	for spec := range specs[*ast.TypeSpec](file) {
		body, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		all[spec.Name.Name] = map[string]property{}
		for _, field := range body.Fields.List {
			doc := field.Doc.Text()
			for _, name := range field.Names {
				all[spec.Name.Name][name.Name] = property{field.Type, strings.HasPrefix(doc, "REQUIRED;"), strings.HasPrefix(doc, "READ-ONLY;")}
			}
		}
	}
	return all
}

func specs[S ast.Spec](file *ast.File) func(func(S) bool) {
	return func(yield func(S) bool) {
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if s, ok := spec.(S); ok && !yield(s) {
					return
				}
			}
		}
	}
}

// jsonNames returns the fields by JSON name, from populate(m, "name", x.Field)
// in the methods MarshalJSON.
func jsonNames(file *ast.File) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, decl := range file.Decls {
		method, ok := decl.(*ast.FuncDecl)
		if !ok || method.Name.Name != "MarshalJSON" || method.Recv == nil {
			continue
		}
		kind, ok := method.Recv.List[0].Type.(*ast.Ident)
		if !ok {
			continue
		}
		all[kind.Name] = map[string]string{}
		ast.Inspect(method.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 3 {
				name, isText := call.Args[1].(*ast.BasicLit)
				field, isField := selected(call.Args[2])
				if text, err := strconv.Unquote(literal(name)); isText && isField && err == nil {
					all[kind.Name][text] = field
				}
			}
			return true
		})
	}
	return all
}

func literal(l *ast.BasicLit) string {
	if l == nil {
		return ""
	}
	return l.Value
}

// selected finds x.Field, also below a conversion.
func selected(e ast.Expr) (string, bool) {
	var name string
	ast.Inspect(e, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && name == "" {
			if _, plain := s.X.(*ast.Ident); plain {
				name = s.Sel.Name
			}
		}
		return true
	})
	return name, name != ""
}

func enumTypes(file *ast.File) map[string]bool {
	types := map[string]bool{}
	for spec := range specs[*ast.TypeSpec](file) {
		types[spec.Name.Name] = true
	}
	return types
}

func enumValues(file *ast.File, name string) []string {
	var list []string
	for spec := range specs[*ast.ValueSpec](file) {
		kind, ok := spec.Type.(*ast.Ident)
		if !ok || kind.Name != name || len(spec.Values) != 1 {
			continue
		}
		value, _ := spec.Values[0].(*ast.BasicLit)
		if text, err := strconv.Unquote(literal(value)); err == nil {
			list = append(list, text)
		}
	}
	return list
}

// openEnums have more values than the SDK lists: VM sizes and types of disks come from
// the list of SKUs.
var openEnums = []string{"VirtualMachineSizeTypes", "DiskStorageAccountTypes"}

// check returns everything that is wrong with a JSON value of a type.
func (s *schema) check(kind string, value any, at string) []string {
	members, known := s.structs[kind]
	if !known {
		return s.checkEnum(kind, value, at)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s is not an object (%s)", at, kind)}
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		p, ok := members[name]
		where := strings.TrimPrefix(at+"."+name, ".")
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("could not find member %s on object of type %s", where, kind))
		case p.readOnly:
			wrong = append(wrong, where+" is read-only")
		default:
			wrong = append(wrong, s.checkExpr(p.kind, object[name], where)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if _, there := object[name]; members[name].required && !there {
			wrong = append(wrong, fmt.Sprintf("required member %s is missing on object of type %s", strings.TrimPrefix(at+"."+name, "."), kind))
		}
	}
	return wrong
}

func (s *schema) checkEnum(kind string, value any, at string) []string {
	text, ok := value.(string)
	if !ok {
		return []string{fmt.Sprintf("%s is not a text (%s)", at, kind)}
	}
	if values := s.enums[kind]; len(values) > 0 && !slices.Contains(values, text) && !slices.Contains(openEnums, kind) {
		return []string{fmt.Sprintf("%s is %q, which is not a %s", at, text, kind)}
	}
	return nil
}

func (s *schema) checkExpr(kind ast.Expr, value any, at string) []string {
	switch k := kind.(type) {
	case *ast.StarExpr:
		return s.checkExpr(k.X, value, at)
	case *ast.ArrayType:
		return s.checkList(k, value, at)
	case *ast.MapType:
		return s.checkMap(k, value, at)
	case *ast.SelectorExpr: // time.Time
		if text, ok := value.(string); ok {
			if _, err := time.Parse(time.RFC3339, text); err == nil {
				return nil
			}
		}
		return []string{at + " is not a time"}
	case *ast.Ident:
		if basic, ok := basicKinds[k.Name]; ok {
			return checkBasic(basic, k.Name, value, at)
		}
		return s.check(k.Name, value, at)
	}
	return nil // any
}

func (s *schema) checkList(kind *ast.ArrayType, value any, at string) []string {
	list, ok := value.([]any)
	if !ok {
		return []string{at + " is not a list"}
	}
	var wrong []string
	for i, item := range list {
		wrong = append(wrong, s.checkExpr(kind.Elt, item, fmt.Sprintf("%s[%d]", at, i))...)
	}
	return wrong
}

func (s *schema) checkMap(kind *ast.MapType, value any, at string) []string {
	object, ok := value.(map[string]any)
	if !ok {
		return []string{at + " is not an object"}
	}
	var wrong []string
	for name, item := range object {
		wrong = append(wrong, s.checkExpr(kind.Value, item, at+"."+name)...)
	}
	return wrong
}

var basicKinds = map[string]reflect.Kind{
	"string": reflect.String, "bool": reflect.Bool, "float32": reflect.Float64, "float64": reflect.Float64,
	"int32": reflect.Int32, "int64": reflect.Int64,
}

func checkBasic(kind reflect.Kind, name string, value any, at string) []string {
	ok := false
	switch v := value.(type) {
	case string:
		ok = kind == reflect.String
	case bool:
		ok = kind == reflect.Bool
	case float64:
		whole := v == math.Trunc(v)
		ok = kind == reflect.Float64 || kind == reflect.Int64 && whole || kind == reflect.Int32 && whole && math.Abs(v) <= math.MaxInt32
	}
	if ok {
		return nil
	}
	return []string{fmt.Sprintf("%s is %v, which is not a %s", at, value, name)}
}
