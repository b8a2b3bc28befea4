// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
)

// kind is what a value must be.
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

// of returns the kind of a key; 0 if it may be anything.
func (ks kinds) of(key string) kind {
	for k, keys := range ks {
		if slices.Contains(keys, strings.ToLower(key)) {
			return k
		}
	}
	return 0
}

func (ks kinds) check(file *ini.File) (errs []error) {
	for _, s := range file.Sections {
		if s.Sub != "" {
			continue
		}
		for _, k := range s.Keys {
			if err := ks.of(s.Name + "." + k.Name).check(k.Text()); err != nil {
				errs = append(errs, fmt.Errorf("line %d: %s %s: %w", k.Line, s, k.Name, err))
			}
		}
	}
	return errs
}

// check returns what is wrong with a value, without showing it.
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

// checkJSON returns what is wrong with a value of JSON.
func (k kind) checkJSON(value any) error {
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
