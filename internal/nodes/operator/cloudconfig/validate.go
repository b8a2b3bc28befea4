// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/jsonobject"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
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
	AWS:           optional(iniFile(awsKinds, checkOverrides)),
	Azure:         validateAzure,
	AzureStackHub: validateAzure,
	GCP:           optional(iniFile(gcpKinds, nil)),
	IBMCloud:      optional(iniFile(nil, nil)),
	PowerVS:       optional(iniFile(nil, nil)),
	OpenStack:     optional(iniFile(openstackKinds, nil)),
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

// iniFile checks syntax and kinds of values, and what more does, if it is not nil.
func iniFile(of kinds, more func(*ini.File) []error) func(string) error {
	return func(text string) error {
		file, err := ini.Parse(text)
		if err != nil {
			return err
		}
		errs := of.check(file)
		if more != nil {
			errs = append(errs, more(file)...)
		}
		return errors.Join(errs...)
	}
}

func checkOverrides(file *ini.File) []error {
	var faults failure.Faults
	overridden := map[string]*ini.Section{}
	for _, s := range file.Sections {
		if !strings.EqualFold(s.Name, "ServiceOverride") || s.Sub == "" {
			continue
		}
		for _, name := range []string{"Service", "Region", "URL", "SigningRegion"} {
			value, _ := s.Get(name)
			faults.AddIf(strings.TrimSpace(value) == "", "line %d: %s: key %s is missing or empty", s.Line, s, name)
		}
		service, _ := s.Get("Service")
		region, _ := s.Get("Region")
		first := overridden[service+"_"+region]
		faults.AddIf(first != nil, "line %d: %s overrides the same service in the same region as %s", s.Line, s, first)
		overridden[service+"_"+region] = s
	}
	return faults
}

func validateAzure(text string) error {
	config, err := jsonobject.Parse(text)
	if err != nil {
		return err
	}
	var faults failure.Faults
	for _, key := range slices.Sorted(maps.Keys(config)) {
		err := azureKinds.of(key).checkJSON(config[key])
		faults.AddIf(err != nil, "key %q: %w", key, err)
	}
	return errors.Join(faults...)
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
		case !utf8.ValidString(line) || strings.ContainsRune(line, 0):
			errs = append(errs, fmt.Errorf("line %d: not UTF-8 text", number))
		case !ok || !isVariable.MatchString(key):
			errs = append(errs, fmt.Errorf("line %d: want VARIABLE=VALUE, with a variable of letters, digits and underscores", number))
		case seen[key] != 0:
			errs = append(errs, fmt.Errorf("line %d: %s is set in line %d already", number, key, seen[key]))
		default:
			seen[key] = number
		}
	}
	return errors.Join(errs...)
}

var isVariable = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

func validateVSphere(text string) error {
	config, err := readVSphere(text)
	if err != nil {
		return err
	}
	var faults failure.Faults
	global, vcenters := config.section("global"), config.section("vcenter")
	checkVCenter("global", global, &faults)
	faults.AddIf(vcenters.empty() && global.get("server") == nil, `key "vcenter": at least one vCenter is expected`)
	for name, v := range vcenters.entries() {
		checkVCenter("vcenter."+name, v, &faults)
		s := v.get("server")
		faults.AddIf(s == nil || s.Value == "", "line %d: key %q is missing", v.Line, "vcenter."+name+".server")
	}
	for name, value := range config.section("nodes").entries() {
		if !strings.HasSuffix(name, "NetworkSubnetCidr") {
			continue
		}
		for _, r := range splitList(value.Value) {
			_, err := netip.ParsePrefix(r)
			faults.AddIf(err != nil, "line %d: key %q: %q is not a range of addresses such as 192.0.2.0/24", value.Line, "nodes."+name, r)
		}
	}
	return errors.Join(faults...)
}

// checkVCenter checks what may stand in section global as well as in that of a
// vCenter.
func checkVCenter(path string, v *document, faults *failure.Faults) {
	for name, value := range v.entries() {
		err := vsphereKinds[name].checkYAML(value)
		faults.AddIf(err != nil, "line %d: key %q: %w", value.Line, path+"."+name, err)
	}
	if families := v.get("ipFamily"); families != nil && families.Kind == yaml.SequenceNode {
		for _, f := range families.Content {
			err := isFamily.check(strings.ToLower(f.Value))
			faults.AddIf(err != nil, "line %d: key %q: %w", f.Line, path+".ipFamily", err)
		}
	}
}

// null is the tag of what has no value.
const null = "!!null"

func (k kind) checkYAML(n *document) error {
	switch {
	case n.Tag == null:
		return nil
	case k == isList && n.Kind != yaml.SequenceNode:
		return errors.New("a list is expected")
	case k == isBool && n.Style != 0, k == isNumber && n.Tag != "!!int":
		return k.check("") // a text is neither
	default:
		// The controller manager also takes yes and on, as YAML once did.
		return k.check(n.Value)
	}
}

type kind int

const (
	isBool kind = 1 + iota
	isNumber
	isList
	isDuration
	isFamily
	isProbeMode
	isVMType
	isString
)

// kinds are the keys of each kind, as section and key in lower case.
type kinds map[kind][]string

var awsKinds = kinds{
	isBool:      {"global.disablesecuritygroupingress"},
	isNumber:    {"global.clusterservicesharedloadbalancerhealthprobeport"},
	isProbeMode: {"global.clusterserviceloadbalancerhealthprobemode"},
	isFamily:    {"global.nodeipfamilies"},
}

var gcpKinds = kinds{isBool: {"global.multizone", "global.regional"}}

var openstackKinds = kinds{
	isBool: {
		"global.use-clouds", "loadbalancer.enabled", "loadbalancer.create-monitor", "loadbalancer.manage-security-groups",
		"loadbalancer.internal-lb", "loadbalancer.cascade-delete", "loadbalancer.enable-ingress-hostname",
		"loadbalancer.provider-requires-serial-api-calls", "networking.ipv6-support-disabled",
	},
	isDuration: {"loadbalancer.monitor-delay", "loadbalancer.monitor-timeout", "metadata.request-timeout"},
	isNumber:   {"loadbalancer.monitor-max-retries", "loadbalancer.monitor-max-retries-down", "loadbalancer.max-shared-lb"},
}

var azureKinds = kinds{
	isString: {
		"cloud", "tenantid", "subscriptionid", "aadclientid", "aadclientsecret", "resourcegroup", "location",
		"clusterserviceloadbalancerhealthprobemode",
	},
	isBool: {
		"usemanagedidentityextension", "useinstancemetadata", "usefederatedworkloadidentityextension", "cloudproviderbackoff",
		"cloudproviderratelimit", "disableoutboundsnat", "excludemasterfromstandardlb",
	},
	isNumber: {"cloudproviderbackoffretries"},
	isVMType: {"vmtype"},
}

func (ks kinds) of(key string) kind {
	for k, keys := range ks {
		if slices.Contains(keys, strings.ToLower(key)) {
			return k
		}
	}
	return 0
}

func (ks kinds) check(file *ini.File) []error {
	var faults failure.Faults
	for _, s := range file.Sections {
		for _, k := range s.Keys {
			err := ks.of(s.Name + "." + k.Name).check(k.Text())
			faults.AddIf(s.Sub == "" && err != nil, "line %d: %s %s: %w", k.Line, s, k.Name, err)
		}
	}
	return faults
}

func (k kind) check(value string) error {
	switch k {
	case isBool:
		if _, ok := parseBool(value); !ok {
			return errors.New("true or false is expected")
		}
	case isNumber:
		if n, err := strconv.ParseInt(value, 10, 32); err != nil || n < 0 {
			return errors.New("a number of 0 or more is expected")
		}
	case isDuration:
		if _, err := time.ParseDuration(value); err != nil {
			return errors.New("a duration such as 30s is expected")
		}
	case isFamily:
		return oneOf(value, "ipv4", "ipv6")
	case isProbeMode:
		return oneOf(value, "Shared", "ServiceNodePort")
	case isVMType:
		return oneOf(strings.ToLower(value), "", "standard", "vmss", "vmssflex")
	}
	return nil
}

func oneOf(value string, of ...string) error {
	if slices.Contains(of, value) {
		return nil
	}
	of = slices.DeleteFunc(slices.Clone(of), func(s string) bool { return s == "" })
	return fmt.Errorf("%s is expected", strings.Join(of, " or "))
}

func (k kind) checkJSON(value any) error {
	if k == 0 {
		return nil
	}
	switch v := value.(type) {
	case nil:
		return nil
	case bool:
		if k == isBool {
			return nil
		}
	case json.Number:
		if k == isNumber {
			return k.check(v.String())
		}
	case string:
		if k != isBool && k != isNumber {
			return k.check(v)
		}
	}
	return fmt.Errorf("a JSON %s is expected", map[kind]string{isBool: "boolean", isNumber: "number", isString: "string", isVMType: "string"}[k])
}
