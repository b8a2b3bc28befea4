// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Module is the one that holds the definition.
const Module = "google.golang.org/api@v0.279.0"

// definition is a discovery document.
type definition struct {
	Revision   string               `json:"revision"`
	Parameters map[string]*schema   `json:"parameters"`
	Schemas    map[string]*schema   `json:"schemas"`
	Resources  map[string]*resource `json:"resources"`

	methods []*method
}

type resource struct {
	Methods   map[string]*method   `json:"methods"`
	Resources map[string]*resource `json:"resources"`
}

// method is one call.
type method struct {
	ID         string             `json:"id"`
	HTTPMethod string             `json:"httpMethod"`
	Path       string             `json:"path"`
	Parameters map[string]*schema `json:"parameters"`
	Request    *schema            `json:"request"`
	Response   *schema            `json:"response"`

	pattern *regexp.Regexp
	names   []string
}

// schema describes a value, a parameter included.
type schema struct {
	Ref         string             `json:"$ref"`
	Type        string             `json:"type"`
	Format      string             `json:"format"`
	Enum        []string           `json:"enum"`
	Pattern     string             `json:"pattern"`
	Minimum     string             `json:"minimum"`
	Maximum     string             `json:"maximum"`
	Location    string             `json:"location"`
	Required    bool               `json:"required"`
	Repeated    bool               `json:"repeated"`
	ReadOnly    bool               `json:"readOnly"`
	Properties  map[string]*schema `json:"properties"`
	Additional  *schema            `json:"additionalProperties"`
	Items       *schema            `json:"items"`
	Annotations struct {
		Required []string `json:"required"`
	} `json:"annotations"`

	once     sync.Once
	compiled *regexp.Regexp
}

// matches compares the whole text with the pattern.
func (s *schema) matches(text string) bool {
	s.once.Do(func() { s.compiled = regexp.MustCompile("^(?:" + s.Pattern + ")$") })
	return s.compiled.MatchString(text)
}

var loaded struct {
	sync.Mutex
	compute *definition
}

// load reads the definition, once for all tests of a process.
func load(t testing.TB) *definition {
	t.Helper()
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.compute != nil {
		return loaded.compute
	}
	text, err := os.ReadFile(filepath.Join(cloudsim.ModuleDir(t, Module), "compute/v1/compute-api.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d definition
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, r := range d.Resources {
		d.collect(r)
	}
	loaded.compute = &d
	return &d
}

func (d *definition) collect(r *resource) {
	for _, m := range r.Methods {
		m.compile()
		d.methods = append(d.methods, m)
	}
	for _, inner := range r.Resources {
		d.collect(inner)
	}
}

var placeholder = regexp.MustCompile(`\{\+?([a-zA-Z]+)\}`)

// compile turns the path with its parameters into an expression; the values
// are checked afterwards, so that a wrong one is told from a wrong path.
func (m *method) compile() {
	var text strings.Builder
	last := 0
	for _, at := range placeholder.FindAllStringSubmatchIndex(m.Path, -1) {
		text.WriteString(regexp.QuoteMeta(m.Path[last:at[0]]) + "([^/]+)")
		m.names = append(m.names, m.Path[at[2]:at[3]])
		last = at[1]
	}
	text.WriteString(regexp.QuoteMeta(m.Path[last:]))
	m.pattern = regexp.MustCompile("^" + text.String() + "$")
}

// find returns the call that a request is, and the parameters in its path.
func (d *definition) find(verb, path string) (*method, map[string]string) {
	var best *method
	var found []string
	for _, m := range d.methods {
		if m.HTTPMethod != verb {
			continue
		}
		// Fixed words win over parameters: images/family/F over images/I/F.
		if values := m.pattern.FindStringSubmatch(path); values != nil && (best == nil || len(values) < len(found)) {
			best, found = m, values
		}
	}
	if best == nil {
		return nil, nil
	}
	params := map[string]string{}
	for i, name := range best.names {
		params[name] = found[i+1]
	}
	return best, params
}

// resolve follows a reference.
func (d *definition) resolve(s *schema) *schema {
	for s != nil && s.Ref != "" {
		s = d.Schemas[s.Ref]
	}
	return s
}

// checkParameters compares the parameters of a call with the definition.
func (d *definition) checkParameters(m *method, path map[string]string, query map[string][]string) error {
	for name, value := range path {
		if err := m.Parameters[name].checkText(name, value); err != nil {
			return err
		}
	}
	for name, values := range query {
		s := m.Parameters[name]
		if s == nil {
			s = d.Parameters[name]
		}
		if s == nil || s.Location != "query" {
			return fmt.Errorf("invalid JSON payload received. Unknown name %q: Cannot bind query parameter. Field %q could not be found in request message", name, name)
		}
		if len(values) > 1 && !s.Repeated {
			return fmt.Errorf("parameter %q is there %d times", name, len(values))
		}
		for _, value := range values {
			if err := s.checkText(name, value); err != nil {
				return err
			}
		}
	}
	for name, s := range m.Parameters {
		if s.Required && s.Location == "query" && query[name] == nil {
			return fmt.Errorf("required field '%s' not specified", name)
		}
	}
	return nil
}

// checkText checks a parameter, which is text whatever its type.
func (s *schema) checkText(name, text string) error {
	var err error
	switch s.Type {
	case "boolean":
		if text != "true" && text != "false" {
			err = fmt.Errorf("no boolean")
		}
	case "integer":
		err = s.checkNumber(text)
	default:
		err = s.checkString(text)
	}
	if err != nil {
		return fmt.Errorf("invalid value for field '%s': '%s'. %w", name, text, err)
	}
	return nil
}

func (s *schema) checkNumber(text string) error {
	var n, low, high int64
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil || fmt.Sprint(n) != text {
		return fmt.Errorf("no whole number")
	}
	if s.Minimum != "" {
		if fmt.Sscan(s.Minimum, &low); n < low {
			return fmt.Errorf("less than %d", low)
		}
	}
	if s.Maximum != "" {
		if fmt.Sscan(s.Maximum, &high); n > high {
			return fmt.Errorf("more than %d", high)
		}
	}
	return nil
}

func (s *schema) checkString(text string) error {
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, text) {
		return fmt.Errorf("none of %v", s.Enum)
	}
	if s.Pattern != "" && !s.matches(text) {
		return fmt.Errorf("must be a match of regex '%s'", s.Pattern)
	}
	if s.Format == "int64" || s.Format == "uint64" {
		return s.checkNumber(text)
	}
	return nil
}

// checkBody compares a decoded JSON value with a schema. method is the call,
// for the fields that it requires.
func (d *definition) checkBody(s *schema, value any, path, method string) error {
	s = d.resolve(s)
	switch v := value.(type) {
	case map[string]any:
		return d.checkObject(s, v, path, method)
	case []any:
		if s.Type != "array" {
			return typeError(path, s, "list")
		}
		for i, item := range v {
			if err := d.checkBody(s.Items, item, fmt.Sprintf("%s[%d]", path, i), method); err != nil {
				return err
			}
		}
	case string:
		if s.Type != "string" {
			return typeError(path, s, "string")
		}
		if err := s.checkString(v); err != nil {
			return fmt.Errorf("invalid value for field '%s': '%s'. %w", path, v, err)
		}
	case bool:
		if s.Type != "boolean" {
			return typeError(path, s, "boolean")
		}
	case float64:
		if s.Type != "integer" && s.Type != "number" && s.Format != "int64" && s.Format != "uint64" {
			return typeError(path, s, "number")
		}
	}
	return nil
}

func typeError(path string, s *schema, got string) error {
	return fmt.Errorf("invalid value at '%s' (%s), got a %s", path, s.Type, got)
}

func (d *definition) checkObject(s *schema, object map[string]any, path, method string) error {
	if s.Type != "object" {
		return typeError(path, s, "object")
	}
	for name, value := range object {
		inner := s.Properties[name]
		if inner == nil {
			inner = s.Additional
		}
		if inner == nil {
			return fmt.Errorf("invalid JSON payload received. Unknown name %q at '%s': Cannot find field", name, path)
		}
		// Google overlooks what is only for answers. A client that sends it is
		// mistaken, except for kind, with which many mark their objects.
		if inner.ReadOnly && name != "kind" {
			return fmt.Errorf("field '%s.%s' is output only", path, name)
		}
		if err := d.checkBody(inner, value, path+"."+name, method); err != nil {
			return err
		}
	}
	for name, inner := range s.Properties {
		if _, there := object[name]; !there && slices.Contains(inner.Annotations.Required, method) {
			return fmt.Errorf("required field '%s.%s' not specified", path, name)
		}
	}
	return nil
}
