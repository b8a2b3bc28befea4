// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Module is the one with the definitions.
const Module = "github.com/moby/moby/api"

// definition is the engine's API in one version (Swagger 2.0).
type definition struct {
	Paths       map[string]map[string]*operation `yaml:"paths"`
	Definitions map[string]*schema               `yaml:"definitions"`

	operations []*operation
}

// operation is one call.
type operation struct {
	ID         string               `yaml:"operationId"`
	Parameters []*parameter         `yaml:"parameters"`
	Responses  map[string]*response `yaml:"responses"`

	verb    string
	pattern *regexp.Regexp
	names   []string
}

type parameter struct {
	Name     string  `yaml:"name"`
	In       string  `yaml:"in"`
	Required bool    `yaml:"required"`
	Body     *schema `yaml:"schema"`

	schema `yaml:",inline"`
}

type response struct {
	Schema *schema `yaml:"schema"`
}

// schema describes a value.
type schema struct {
	Ref        string             `yaml:"$ref"`
	AllOf      []*schema          `yaml:"allOf"`
	Type       string             `yaml:"type"`
	Enum       []any              `yaml:"enum"`
	Pattern    string             `yaml:"pattern"`
	Minimum    *float64           `yaml:"minimum"`
	Maximum    *float64           `yaml:"maximum"`
	Members    []string           `yaml:"required"`
	Properties map[string]*schema `yaml:"properties"`
	Additional additional         `yaml:"additionalProperties"`
	Items      *schema            `yaml:"items"`
}

// additional is a schema, or true for whatever comes.
type additional struct {
	any    bool
	schema *schema
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (a *additional) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&a.any)
	}
	return n.Decode(&a.schema)
}

// UnmarshalYAML implements yaml.Unmarshaler: of a parameter "required" is a
// boolean and of a schema a list.
func (p *parameter) UnmarshalYAML(n *yaml.Node) error {
	var plain struct {
		Name     string   `yaml:"name"`
		In       string   `yaml:"in"`
		Required bool     `yaml:"required"`
		Body     *schema  `yaml:"schema"`
		Type     string   `yaml:"type"`
		Enum     []any    `yaml:"enum"`
		Pattern  string   `yaml:"pattern"`
		Minimum  *float64 `yaml:"minimum"`
		Maximum  *float64 `yaml:"maximum"`
	}
	err := n.Decode(&plain)
	*p = parameter{plain.Name, plain.In, plain.Required, plain.Body, schema{Type: plain.Type, Enum: plain.Enum, Pattern: plain.Pattern, Minimum: plain.Minimum, Maximum: plain.Maximum}}
	return err
}

var (
	loaded   = map[string]*definition{}
	loadedMu sync.Mutex
)

// load reads the definition of a version once for all tests of a process.
func load(version string) (*definition, error) {
	loadedMu.Lock()
	defer loadedMu.Unlock()
	if loaded[version] == nil {
		d, err := read(version)
		if err != nil {
			return nil, fmt.Errorf("the definition of the engine's API %s: %w", version, err)
		}
		loaded[version] = d
	}
	return loaded[version], nil
}

// moduleDir is where the Go tool keeps the definitions.
var moduleDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", Module).Output()
	return strings.TrimSpace(string(out)), err
})

func read(version string) (*definition, error) {
	dir, err := moduleDir()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "docs", "v"+version+".yaml"))
	if err != nil {
		return nil, err
	}
	d := &definition{}
	if err := yaml.Unmarshal(text, d); err != nil {
		return nil, err
	}
	for path, verbs := range d.Paths {
		for verb, o := range verbs {
			o.verb = strings.ToUpper(verb)
			o.compile(path)
			d.operations = append(d.operations, o)
		}
	}
	return d, nil
}

var placeholder = regexp.MustCompile(`\{([a-zA-Z]+)\}`)

// compile turns the path into an expression. Names of images have slashes.
func (o *operation) compile(path string) {
	var text strings.Builder
	last := 0
	for _, at := range placeholder.FindAllStringSubmatchIndex(path, -1) {
		value := "([^/]+)"
		if strings.HasPrefix(path, "/images/") {
			value = "(.+)"
		}
		text.WriteString(regexp.QuoteMeta(path[last:at[0]]) + value)
		o.names = append(o.names, path[at[2]:at[3]])
		last = at[1]
	}
	text.WriteString(regexp.QuoteMeta(path[last:]))
	o.pattern = regexp.MustCompile("^" + text.String() + "$")
}

// find returns the call that a request is, and the parameters in its path.
// Fixed words win over parameters: /containers/json over /containers/{id}.
func (d *definition) find(verb, path string) (*operation, map[string]string) {
	var best *operation
	var found []string
	for _, o := range d.operations {
		if o.verb != verb {
			continue
		}
		if values := o.pattern.FindStringSubmatch(path); values != nil && (best == nil || len(values) < len(found)) {
			best, found = o, values
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
