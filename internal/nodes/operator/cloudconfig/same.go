// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/jsonobject"
)

// Same reports whether two configurations say the same to a platform's controller
// manager: order, spaces and comments do not count, and what is empty is as what is
// not there. Whoever takes the place of another operator leaves what that wrote in its
// own form, since pods restart for each byte.
func Same(p Platform, a, b string) bool {
	if a == b {
		return true
	}
	read := map[Platform]func(string) any{
		AWS: iniValues, OpenStack: iniValues, Azure: jsonValues, AzureStackHub: jsonValues, VSphere: yamlValues,
	}[p]
	if read == nil {
		return false
	}
	one, other := read(a), read(b)
	return one != nil && reflect.DeepEqual(one, other)
}

// iniValues returns the values by section and key; nil if text is not an INI file.
func iniValues(text string) any {
	file, err := ini.Parse(text)
	if err != nil {
		return nil
	}
	all := map[[3]string][]string{}
	for _, s := range file.Sections {
		// A section alone is something to those who ask whether it is there.
		all[[3]string{strings.ToLower(s.Name), s.Sub}] = nil
		for _, k := range s.Keys {
			name := [3]string{strings.ToLower(s.Name), s.Sub, strings.ToLower(k.Name)}
			all[name] = append(all[name], k.Text())
		}
	}
	return all
}

// azureUnset are the keys for which false is not the same as no value: the only ones that
// the provider reads into a *bool (pkg/provider/config/azure.go of
// sigs.k8s.io/cloud-provider-azure v1.36.3). One more is in a list, which counts whole.
var azureUnset = map[string]bool{"excludemasterfromstandardlb": true, "disableoutboundsnat": true}

func jsonValues(text string) any {
	o, err := jsonobject.Parse(text)
	if err != nil {
		return nil
	}
	all := map[string]any{}
	for key, value := range o {
		if key = strings.ToLower(key); value == false && azureUnset[key] || !empty(value) {
			all[key] = value
		}
	}
	return all
}

func yamlValues(text string) any {
	var all map[string]any
	if yaml.Unmarshal([]byte(text), &all) != nil || all == nil {
		return nil
	}
	return withoutEmpty(all)
}

func withoutEmpty(value any) any {
	if m, is := value.(map[string]any); is {
		maps.DeleteFunc(m, func(key string, v any) bool {
			m[key] = withoutEmpty(v)
			return empty(m[key])
		})
	}
	return value
}

// empty reports whether a value is that of a field that nobody sets.
func empty(value any) bool {
	switch v := value.(type) {
	case json.Number:
		return v == "0"
	case nil, bool, string, int:
		return v == nil || reflect.ValueOf(v).IsZero()
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
