// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/jsonobject"
)

// Validate returns what a platform's controller manager would not take of a
// configuration, as it is after [Transform]: a wrong syntax or encoding, a
// value of the wrong kind, or something missing without which it does not
// start. It says all it finds, by line and key. Keys that nobody knows are
// none of its concern: a newer controller manager may know them. An empty
// configuration passes where the controller manager can do without one.
func Validate(p Platform, text string) error {
	validate, ok := validators[p]
	if !ok {
		return fmt.Errorf("no rules for platform %q", p)
	}
	return validate(text)
}

// Known reports whether there are rules for a platform.
func Known(p Platform) bool {
	_, known := validators[p]
	return known
}

var validators = map[Platform]func(string) error{
	AWS:           optional(validateAWS),
	Azure:         validateAzure,
	AzureStackHub: validateAzure,
	GCP:           optional(iniFile(gcpKinds)),
	IBMCloud:      optional(iniFile(nil)),
	PowerVS:       optional(iniFile(nil)),
	OpenStack:     optional(iniFile(openstackKinds)),
	VSphere:       validateVSphere,
	Nutanix:       optional(validateNutanix),
	AlibabaCloud:  validateVariables,
	Libvirt:       validateVariables,
	Docker:        validateVariables,
	QEMU:          validateVariables,
}

func optional(validate func(string) error) func(string) error {
	return func(text string) error {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		return validate(text)
	}
}

// iniFile checks syntax and kinds of values.
func iniFile(of kinds) func(string) error {
	return func(text string) error {
		file, err := ini.Parse(text)
		if err != nil {
			return err
		}
		return errors.Join(of.check(file)...)
	}
}

func validateAWS(text string) error {
	file, err := ini.Parse(text)
	if err != nil {
		return err
	}
	errs := awsKinds.check(file)
	overridden := map[string]*ini.Section{}
	for _, s := range file.Sections {
		if !strings.EqualFold(s.Name, "ServiceOverride") || s.Sub == "" {
			continue
		}
		for _, name := range []string{"Service", "Region", "URL", "SigningRegion"} {
			if value, _ := s.Get(name); strings.TrimSpace(value) == "" {
				errs = append(errs, fmt.Errorf("line %d: %s: key %s is missing or empty", s.Line, s, name))
			}
		}
		service, _ := s.Get("Service")
		region, _ := s.Get("Region")
		if first := overridden[service+"_"+region]; first != nil {
			errs = append(errs, fmt.Errorf("line %d: %s overrides the same service in the same region as %s", s.Line, s, first))
		}
		overridden[service+"_"+region] = s
	}
	return errors.Join(errs...)
}

func validateAzure(text string) error {
	config, err := jsonobject.Parse(text)
	if err != nil {
		return err
	}
	var errs []error
	for key, value := range config {
		if want, ok := azureKinds[strings.ToLower(key)]; ok {
			if err := want.checkJSON(value); err != nil {
				errs = append(errs, fmt.Errorf("key %q: %w", key, err))
			}
		}
	}
	return errors.Join(inOrder(errs)...)
}

func validateNutanix(text string) error {
	config, err := jsonobject.Parse(text)
	if err != nil {
		return err
	}
	central, ok := config["prismCentral"].(map[string]any)
	if !ok {
		return errors.New(`key "prismCentral": an object is expected`)
	}
	if address, _ := central["address"].(string); address == "" {
		return errors.New(`key "prismCentral.address": a string is expected`)
	}
	return nil
}

// validateVariables checks lines VARIABLE=VALUE, which our own controller
// manager reads.
func validateVariables(text string) error {
	var errs []error
	seen := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		line, number := strings.TrimSpace(line), i+1
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, _, ok := strings.Cut(line, "=")
		switch {
		case !isText(line):
			errs = append(errs, fmt.Errorf("line %d: not UTF-8 text", number))
		case !ok || !isVariable(key):
			errs = append(errs, fmt.Errorf("line %d: want VARIABLE=VALUE, with a variable of letters, digits and underscores", number))
		case seen[key] != 0:
			errs = append(errs, fmt.Errorf("line %d: %s is set in line %d already", number, key, seen[key]))
		default:
			seen[key] = number
		}
	}
	return errors.Join(errs...)
}

func isVariable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && !('0' <= r && r <= '9') && !('A' <= r && r <= 'Z') && !('a' <= r && r <= 'z')
	})
}
