// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"
)

func validateVSphere(text string) error {
	config, err := readVSphere(text)
	if err != nil {
		return err
	}
	global := config.section("global")
	errs := checkVCenter("global", global)
	vcenters := config.section("vcenter")
	if vcenters.empty() && global.get("server") == nil {
		errs = append(errs, errors.New(`key "vcenter": at least one vCenter is expected`))
	}
	for i := 0; i+1 < len(vcenters.Content); i += 2 {
		name := "vcenter." + vcenters.Content[i].Value
		v := (*document)(resolve(vcenters.Content[i+1]))
		errs = append(errs, checkVCenter(name, v)...)
		if s := v.get("server"); s == nil || s.Value == "" {
			errs = append(errs, fmt.Errorf("line %d: key %q is missing", v.Line, name+".server"))
		}
	}
	errs = append(errs, checkRanges(config.section("nodes"))...)
	return errors.Join(errs...)
}

// checkVCenter checks what may stand in section global as well as in that of a
// vCenter.
func checkVCenter(path string, v *document) []error {
	var errs []error
	for i := 0; i+1 < len(v.Content); i += 2 {
		name, value := v.Content[i].Value, resolve(v.Content[i+1])
		if err := vsphereKinds[name].checkYAML(value); err != nil {
			errs = append(errs, fmt.Errorf("line %d: key %q: %w", value.Line, path+"."+name, err))
		}
	}
	if families := v.get("ipFamily"); families != nil && families.Kind == yaml.SequenceNode {
		for _, f := range families.Content {
			if err := isFamily.check(strings.ToLower(f.Value)); err != nil {
				errs = append(errs, fmt.Errorf("line %d: key %q: %w", f.Line, path+".ipFamily", err))
			}
		}
	}
	return errs
}

func (k kind) checkYAML(n *yaml.Node) error {
	if n.Tag == "!!null" {
		return nil
	}
	switch {
	case k == isList && n.Kind != yaml.SequenceNode:
		return errors.New("a list is expected")
	case k == isBool && (n.Style != 0 || k.check(n.Value) != nil):
		// The controller manager also takes yes and on, as YAML once did.
		return errors.New("true or false is expected")
	case k == isNumber && n.Tag != "!!int":
		return errors.New("a number of 0 or more is expected")
	case k == isNumber:
		return k.check(n.Value)
	}
	return nil
}

// checkRanges checks the ranges of addresses, which stand with commas between
// them.
func checkRanges(nodes *document) []error {
	var errs []error
	for _, name := range vsphereNodeKeys {
		value := nodes.get(name)
		if value == nil || !strings.HasSuffix(name, "Cidr") {
			continue
		}
		for _, r := range splitList(value.Value) {
			if _, err := netip.ParsePrefix(r); err != nil {
				errs = append(errs, fmt.Errorf("line %d: key %q: %q is not a range of addresses such as 192.0.2.0/24", value.Line, "nodes."+name, r))
			}
		}
	}
	return errs
}
