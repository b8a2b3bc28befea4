// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
)

// document is a mapping of YAML as it was written: texts that look like numbers
// stay what they are, and so does what nobody knows.
type document yaml.Node

// parseYAML reads a mapping. Names of a mapping must differ.
func parseYAML(source string) (*document, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(source), &root); err != nil {
		return nil, withoutValue(err)
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("a mapping is expected")
	}
	if err := checkNames(root.Content[0]); err != nil {
		return nil, err
	}
	return (*document)(root.Content[0]), nil
}

// withoutValue hides what may be a password that begins with an asterisk.
func withoutValue(err error) error {
	if strings.Contains(err.Error(), "anchor") {
		return errors.New("yaml: unknown anchor; a value that begins with * or & needs quotes")
	}
	return err
}

func checkNames(n *yaml.Node) error {
	seen := map[string]int{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if line, twice := seen[child.Value]; twice {
				return fmt.Errorf("line %d: key %q stands in line %d already", child.Line, child.Value, line)
			}
			seen[child.Value] = child.Line
		}
		if err := checkNames(child); err != nil {
			return err
		}
	}
	return nil
}

func newMapping() *document { return &document{Kind: yaml.MappingNode} }

func (d *document) String() (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode((*yaml.Node)(d)); err != nil {
		return "", err
	}
	return b.String(), e.Close()
}

// entries returns the names and what each stands for.
func (d *document) entries() iter.Seq2[string, *document] {
	return func(yield func(string, *document) bool) {
		for pair := range slices.Chunk(d.Content, 2) {
			value := pair[1]
			if value.Kind == yaml.AliasNode {
				value = value.Alias
			}
			if !yield(pair[0].Value, (*document)(value)) {
				return
			}
		}
	}
}

func (d *document) get(name string) *document {
	for is, value := range d.entries() {
		if is == name {
			return value
		}
	}
	return nil
}

func (d *document) set(name string, value *document) {
	// Lines of their own, also where there was {}.
	d.Style = 0
	for pair := range slices.Chunk(d.Content, 2) {
		if pair[0].Value == name {
			pair[1] = (*yaml.Node)(value)
			return
		}
	}
	d.Content = append(d.Content, (*yaml.Node)(scalar("!!str", name)), (*yaml.Node)(value))
}

func (d *document) remove(name string) {
	for i := 0; i < len(d.Content); i += 2 {
		if d.Content[i].Value == name {
			d.Content = slices.Delete(d.Content, i, i+2)
			return
		}
	}
}

func (d *document) empty() bool { return len(d.Content) == 0 }

// section returns the mapping of this name, which it adds if there is none.
func (d *document) section(name string) *document {
	if s := d.get(name); s != nil && s.Kind == yaml.MappingNode {
		return s
	}
	s := newMapping()
	d.set(name, s)
	return s
}

// entry returns a copy of the mapping of this name, or a new one.
func (d *document) entry(name string) *document {
	s := newMapping()
	if old := d.get(name); old != nil && old.Kind == yaml.MappingNode {
		s.Content = append(s.Content, old.Content...)
	}
	return s
}

func scalar(tag, value string) *document {
	return &document{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

func (d *document) setText(name, value string) { d.set(name, scalar("!!str", value)) }

func (d *document) setNumber(name string, value int) {
	d.set(name, scalar("!!int", strconv.Itoa(value)))
}

func (d *document) setList(name string, values []string) {
	list := &document{Kind: yaml.SequenceNode}
	for _, v := range values {
		list.Content = append(list.Content, (*yaml.Node)(scalar("!!str", v)))
	}
	d.set(name, list)
}

// readVSphere takes both formats that there are.
func readVSphere(source string) (*document, error) {
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("vSphere config is empty")
	}
	config, yamlErr := parseYAML(source)
	if yamlErr == nil {
		return config, checkSections(config)
	}
	file, err := ini.Parse(source)
	if err == nil {
		return fromINI(file)
	}
	if strings.HasPrefix(strings.TrimSpace(source), "[") {
		return nil, fmt.Errorf("ini config parsing failed: %w", err)
	}
	return nil, fmt.Errorf("it is neither YAML (%w) nor INI (%w)", yamlErr, err)
}

// checkSections complains about sections that are none.
func checkSections(config *document) error {
	for _, name := range []string{"global", "vcenter", "labels", "nodes"} {
		if s := config.get(name); s != nil && s.Kind != yaml.MappingNode && s.Tag != null {
			return fmt.Errorf("line %d: key %q: a mapping is expected", s.Line, name)
		}
	}
	if vcenters := config.get("vcenter"); vcenters != nil {
		for name, v := range vcenters.entries() {
			if v.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: vCenter %q: a mapping is expected", v.Line, name)
			}
		}
	}
	return nil
}

// inTree are sections that only the cloud provider knew which was part of
// Kubernetes once.
var inTree = map[string]bool{"workspace": true, "disk": true, "network": true}

func fromINI(file *ini.File) (*document, error) {
	config := newMapping()
	config.section("global")
	config.section("vcenter")
	for _, s := range file.Sections {
		if inTree[strings.ToLower(s.Name)] {
			continue
		}
		if err := addSection(config, s); err != nil {
			return nil, err
		}
	}
	return config, nil
}

func addSection(config *document, s *ini.Section) error {
	to := config.section(yamlName(s.Name))
	if s.Sub != "" {
		to = to.section(s.Sub)
	}
	if strings.EqualFold(s.Name, "VirtualCenter") && s.Sub != "" {
		// In YAML a vCenter has its address always.
		to.setText("server", s.Sub)
	}
	for _, k := range s.Keys {
		if err := addKey(to, s, k); err != nil {
			return err
		}
	}
	return nil
}

// yamlName makes of an INI name such as soap-roundtrip-count the one that YAML
// has.
func yamlName(name string) string {
	if strings.EqualFold(name, "VirtualCenter") {
		return "vcenter"
	}
	words := strings.Split(name, "-")
	if len(words) > 1 {
		words[0] = strings.ToLower(words[0])
	}
	words[0] = strings.ToLower(words[0][:1]) + words[0][1:]
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + strings.ToLower(w[1:])
		}
	}
	return strings.Join(words, "")
}

// Keys whose values are not texts.
var vsphereKinds = map[string]kind{
	"insecureFlag": isBool, "apiDisable": isBool,
	"port": isNumber, "soapRoundtripCount": isNumber,
	"datacenters": isList, "ipFamily": isList,
}

// addKey writes a key as YAML has it. The last of a repeated key counts.
func addKey(to *document, s *ini.Section, k ini.Key) error {
	name, value := yamlName(k.Name), k.Text()
	if value == "" {
		return nil
	}
	kind := vsphereKinds[name]
	if err := kind.check(value); err != nil {
		return fmt.Errorf("line %d: %s %s: %w", k.Line, s, k.Name, err)
	}
	switch kind {
	case isBool:
		b, _ := parseBool(value)
		to.set(name, scalar("!!bool", strconv.FormatBool(b)))
	case isNumber:
		n, _ := strconv.Atoi(value)
		to.setNumber(name, n)
	case isList:
		to.setList(name, splitList(value))
	default:
		to.setText(name, value)
	}
	return nil
}

func splitList(value string) []string {
	var all []string
	for v := range strings.SplitSeq(value, ",") {
		if v = strings.TrimSpace(v); v != "" {
			all = append(all, v)
		}
	}
	return all
}

// parseBool takes what cloud providers take.
func parseBool(value string) (b, ok bool) {
	switch strings.ToLower(value) {
	case "true", "yes", "on", "1":
		return true, true
	case "false", "no", "off", "0":
		return false, true
	}
	return false, false
}
