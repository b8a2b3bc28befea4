// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// products are the APIs whose requests are defined by a module.
var products = map[string]struct{ name, module string }{
	"2014-05-26": {"ecs", "github.com/alibabacloud-go/ecs-20140526/v7@v7.5.0"},
	"2016-04-28": {"vpc", "github.com/alibabacloud-go/vpc-20160428/v6@v6.15.0"},
	"2014-05-15": {"slb", Definitions},
}

// Definitions is the module of load balancers, which is not a dependency:
// build/setup.sh fetches it, for tests that have no network.
const Definitions = "github.com/alibabacloud-go/slb-20140515/v4@v4.0.9"

// oneFile is where older modules have all their models.
const oneFile = "client.go"

// definitions are the request models of the modules, read when first used.
type definitions struct {
	mu      sync.Mutex
	folders map[string]map[string]string     // by version: file by action in lower case, or oneFile
	actions map[string]map[string]*structure // by version/action
	files   map[string]map[string]*structure
}

var defined = &definitions{folders: map[string]map[string]string{}, actions: map[string]map[string]*structure{}, files: map[string]map[string]*structure{}}

// structure is a Go struct of a request model.
type structure struct{ fields map[string]field }

// field is a parameter: a Go type without its star, and whether it is a list.
type field struct {
	kind     string
	list     bool
	required bool
}

// load finds the files of the modules.
func (d *definitions) load(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for version, product := range products {
		if d.folders[version] != nil {
			continue
		}
		dir := filepath.Join(cloudsim.ModuleDir(t, product.module), "client")
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, entry := range entries {
			if name, ok := strings.CutSuffix(entry.Name(), "_request_model.go"); ok {
				files[strings.ReplaceAll(name, "_", "")] = filepath.Join(dir, entry.Name())
			}
		}
		if len(files) == 0 {
			files[oneFile] = filepath.Join(dir, oneFile)
		}
		d.folders[version] = files
	}
}

// action returns the structures of an action's request; nil when there is no
// such action.
func (d *definitions) action(version, action string) (map[string]*structure, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := version + "/" + action
	if known := d.actions[key]; known != nil {
		return known, nil
	}
	file, whole := d.folders[version][strings.ToLower(action)], d.folders[version][oneFile]
	if file == "" {
		file = whole
	}
	if file == "" {
		return nil, nil
	}
	structures, err := d.parse(file)
	if err != nil {
		return nil, err
	}
	if structures[action+"Request"] == nil && file == whole {
		return nil, nil
	}
	if structures[action+"Request"] == nil {
		return nil, fmt.Errorf("%s defines no %sRequest", file, action)
	}
	d.actions[key] = structures
	return structures, nil
}

// parse reads a file once.
func (d *definitions) parse(file string) (map[string]*structure, error) {
	if known := d.files[file]; known != nil {
		return known, nil
	}
	structures, err := parseModel(file)
	d.files[file] = structures
	return structures, err
}

func parseModel(file string) (map[string]*structure, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	structures := map[string]*structure{}
	for _, declaration := range parsed.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if body, ok := named.Type.(*ast.StructType); ok {
				structures[named.Name.Name] = structureOf(body)
			}
		}
	}
	return structures, nil
}

func structureOf(body *ast.StructType) *structure {
	s := &structure{fields: map[string]field{}}
	for _, member := range body.Fields.List {
		if member.Tag == nil {
			continue
		}
		tag, err := strconv.Unquote(member.Tag.Value)
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		f := field{required: strings.Contains(member.Doc.Text(), "This parameter is required.")}
		kind := member.Type
		if array, ok := kind.(*ast.ArrayType); ok {
			f.list, kind = true, array.Elt
		}
		if star, ok := kind.(*ast.StarExpr); ok {
			kind = star.X
		}
		if id, ok := kind.(*ast.Ident); ok {
			f.kind = id.Name
			s.fields[name] = f
		}
	}
	return s
}

// check refuses what the API does not define.
func check(structures map[string]*structure, action string, query url.Values) error {
	top := action + "Request"
	for name, values := range query {
		if len(values) != 1 {
			return refuse("InvalidParameter", "The parameter %s is there %d times.", name, len(values))
		}
		if err := checkOne(structures, top, name, values[0]); err != nil {
			return err
		}
	}
	return required(structures, top, "", query)
}

// checkOne follows the dots of a parameter such as Tag.1.Key.
func checkOne(structures map[string]*structure, in, name, value string) error {
	parts := strings.Split(name, ".")
	for i := 0; i < len(parts); i++ {
		f, ok := structures[in].fields[parts[i]]
		if !ok {
			return refuse("InvalidParameter", "The parameter %s is not defined: %s has no %s.", name, in, parts[i])
		}
		if f.list {
			i++
			if i == len(parts) {
				return refuse("InvalidParameter", "The parameter %s is a list and has no number.", name)
			}
			if n, err := strconv.Atoi(parts[i]); err != nil || n < 1 {
				return refuse("InvalidParameter", "The parameter %s: %q is not a number from 1 on.", name, parts[i])
			}
		}
		if structures[f.kind] != nil {
			in = f.kind
			continue
		}
		if i != len(parts)-1 {
			return refuse("InvalidParameter", "The parameter %s is a %s and has no members.", name, f.kind)
		}
		return checkType(name, f.kind, value)
	}
	return refuse("InvalidParameter", "The parameter %s is not a value.", name)
}

func checkType(name, kind, value string) error {
	var err error
	switch kind {
	case "string":
	case "bool":
		_, err = strconv.ParseBool(value)
	case "int32":
		_, err = strconv.ParseInt(value, 10, 32)
	case "int64":
		_, err = strconv.ParseInt(value, 10, 64)
	case "float32", "float64":
		_, err = strconv.ParseFloat(value, 64)
	default:
		return refuse("NotSimulated", "The parameter %s has the type %s.", name, kind)
	}
	if err != nil {
		return refuse("InvalidParameter", "The parameter %s: %q is not a %s.", name, value, kind)
	}
	return nil
}

// required looks for parameters that have to be there: at the top, and in every
// structure of which something is there.
func required(structures map[string]*structure, in, prefix string, query url.Values) error {
	for name, f := range structures[in].fields {
		if f.required && !anyWithPrefix(query, prefix+name) {
			return refuse("MissingParameter", "The parameter %s%s is required.", prefix, name)
		}
		if structures[f.kind] == nil {
			continue
		}
		for _, at := range elements(f, prefix+name, query) {
			if err := required(structures, f.kind, at+".", query); err != nil {
				return err
			}
		}
	}
	return nil
}

func anyWithPrefix(query url.Values, name string) bool {
	for key, values := range query {
		if (key == name || strings.HasPrefix(key, name+".")) && values[0] != "" {
			return true
		}
	}
	return false
}

// elements returns the prefixes of a structure's occurrences.
func elements(f field, name string, query url.Values) []string {
	if !f.list {
		if anyWithPrefix(query, name) {
			return []string{name}
		}
		return nil
	}
	var all []string
	for n := 1; anyWithPrefix(query, name+"."+strconv.Itoa(n)); n++ {
		all = append(all, name+"."+strconv.Itoa(n))
	}
	return all
}
