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

// kinds are those of keys, by section and key in lower case.
type kinds map[string]kind

var awsKinds = kinds{
	"global.disablesecuritygroupingress":                     isBool,
	"global.clusterservicesharedloadbalancerhealthprobeport": isNumber,
	"global.clusterserviceloadbalancerhealthprobemode":       isProbeMode,
	"global.nodeipfamilies":                                  isFamily,
}

var gcpKinds = kinds{
	"global.multizone": isBool,
	"global.regional":  isBool,
}

var openstackKinds = kinds{
	"global.use-clouds":                               isBool,
	"loadbalancer.enabled":                            isBool,
	"loadbalancer.create-monitor":                     isBool,
	"loadbalancer.monitor-delay":                      isDuration,
	"loadbalancer.monitor-timeout":                    isDuration,
	"loadbalancer.monitor-max-retries":                isNumber,
	"loadbalancer.monitor-max-retries-down":           isNumber,
	"loadbalancer.manage-security-groups":             isBool,
	"loadbalancer.internal-lb":                        isBool,
	"loadbalancer.cascade-delete":                     isBool,
	"loadbalancer.enable-ingress-hostname":            isBool,
	"loadbalancer.max-shared-lb":                      isNumber,
	"loadbalancer.provider-requires-serial-api-calls": isBool,
	"networking.ipv6-support-disabled":                isBool,
	"metadata.request-timeout":                        isDuration,
}

var azureKinds = kinds{
	"cloud":                                     isString,
	"tenantid":                                  isString,
	"subscriptionid":                            isString,
	"aadclientid":                               isString,
	"aadclientsecret":                           isString,
	"resourcegroup":                             isString,
	"location":                                  isString,
	"vmtype":                                    isVMType,
	"usemanagedidentityextension":               isBool,
	"useinstancemetadata":                       isBool,
	"usefederatedworkloadidentityextension":     isBool,
	"cloudproviderbackoff":                      isBool,
	"cloudproviderratelimit":                    isBool,
	"disableoutboundsnat":                       isBool,
	"excludemasterfromstandardlb":               isBool,
	"cloudproviderbackoffretries":               isNumber,
	"clusterserviceloadbalancerhealthprobemode": isString,
}

func (ks kinds) check(file *ini.File) (errs []error) {
	for _, s := range file.Sections {
		if s.Sub != "" {
			continue
		}
		for _, k := range s.Keys {
			if err := ks[strings.ToLower(s.Name+"."+k.Name)].check(k.Text()); err != nil {
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
