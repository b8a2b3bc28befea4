// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
	"go.yaml.in/yaml/v3"
)

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
