// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor/command"
	"github.com/outrigger/outrigger/internal/peerpods/controller"
	"github.com/outrigger/outrigger/internal/upstream"
	"github.com/outrigger/outrigger/provider/config"
)

// values is the schema of the chart's values without the settings of providers
// and of the adaptor, which say themselves what they are.
//
//go:embed values.json
var values []byte

type object = map[string]any

// valuesSchema completes values with the settings of the providers.
func valuesSchema(schemas []config.Schema) ([]byte, error) {
	var schema object
	if err := json.Unmarshal(values, &schema); err != nil {
		return nil, fmt.Errorf("values.json: %w", err)
	}
	configs, secrets, rules := object{}, object{}, []any{}
	for _, s := range schemas {
		open, secret := part(s, false), part(s, true)
		rules = append(rules, demand(s.Provider, open, secret)...)
		// Any setting may be in the Secret, such as a role's name beside its token. Secret
		// ones may only be there.
		configs[s.Provider], secrets[s.Provider] = optional(open), optional(s.JSONSchema())
		addUpstream(s.Provider, configs[s.Provider].(object), secrets[s.Provider].(object))
	}
	properties := schema["properties"].(object)
	configs[otherPowerVS], secrets[otherPowerVS] = configs["ibmcloud-powervs"], secrets["ibmcloud-powervs"]
	properties["providerConfigs"] = byProvider(configs, "settings of providers by their variables")
	properties["providerSecrets"] = byProvider(secrets, "settings of providers by their variables that go into the Secret; the secret ones and, if wanted, others")
	properties["config"] = adaptorConfig()
	if len(rules) > 0 { // JSON Schema allows no empty list
		schema["allOf"] = rules
	}
	data, err := json.MarshalIndent(schema, "", "  ")
	return append(data, '\n'), err
}

// part returns the schema of the settings that are secret, or of the others.
func part(s config.Schema, secret bool) object {
	fields := slices.DeleteFunc(slices.Clone(s.Fields), func(f config.Field) bool { return f.Secret != secret })
	return config.Schema{Provider: s.Provider, Fields: fields}.JSONSchema()
}

// otherPowerVS is the name of ibmcloud-powervs in upstream's chart.
const otherPowerVS = "ibmcloudpowervs"

// optional returns a part of the schema without its required settings: they are
// required only for the provider in use.
func optional(part object) object {
	return object{"type": "object", "properties": part["properties"], "additionalProperties": false}
}

// byProvider lets providers that are not known here have any settings.
func byProvider(known object, description string) object {
	free := object{"type": "object", "additionalProperties": object{"type": "string"}}
	return object{"type": "object", "description": description, "properties": known, "additionalProperties": free}
}

// addUpstream lets a provider have all keys that upstream's chart has for it: those of the adaptor, former
// ones, and keys for ssh.
func addUpstream(name string, configs, secrets object) {
	open, secret := configs["properties"].(object), secrets["properties"].(object)
	for _, key := range upstream.KeysOf(name) {
		into := open
		if key.Secret {
			into = secret
		}
		if _, known := into[key.Name]; !known && key.Name != "CLOUD_PROVIDER" {
			into[key.Name] = object{"type": "string"}
		}
	}
	for _, folder := range []string{"PODS_DIR", "REMOTE_HYPERVISOR_ENDPOINT"} {
		open[folder] = object{"type": "string", "pattern": "^(/run/peerpod/.+)?$", "description": "on the node, whose /run/peerpod the adaptor has"}
	}
	for _, file := range []string{"id_rsa", "id_rsa_pub"} {
		secret[file] = object{"type": "string", "description": "key for ssh, for the Secret ssh-key-secret"}
	}
}

// demand returns what the values must contain if the provider is chosen. Secret settings are demanded only
// where the chart makes the Secret, and so are others that upstream keeps there, in either place.
func demand(name string, open, secret object) []any {
	chosen := object{"provider": object{"const": name}}
	created := object{"provider": object{"const": name}, "secrets": object{"properties": object{"mode": object{"const": "create"}}}}
	required, either := open["required"].([]string), []string{}
	for _, key := range upstream.KeysOf(name) {
		if i := slices.Index(required, key.Name); i >= 0 && key.Secret {
			required, either = slices.Delete(required, i, i+1), append(either, key.Name)
		}
	}
	var rules []any
	if len(required) > 0 {
		rules = append(rules, object{"if": object{"properties": chosen}, "then": needs("providerConfigs", name, required)})
	}
	if all := secret["required"].([]string); len(all) > 0 {
		rules = append(rules, object{"if": object{"properties": created}, "then": needs("providerSecrets", name, all)})
	}
	if len(either) > 0 {
		places := []any{needs("providerConfigs", name, either), needs("providerSecrets", name, either)}
		rules = append(rules, object{"if": object{"properties": created}, "then": object{"anyOf": places}})
	}
	return rules
}

// needs returns the schema of values that have these settings of a provider.
func needs(place, provider string, settings []string) object {
	return object{
		"required":   []string{place},
		"properties": object{place: object{"required": []string{provider}, "properties": object{provider: object{"required": settings}}}},
	}
}

// structured are variables of the adaptor that other values, or the chart
// itself, set.
var structured = []string{"CLOUD_PROVIDER", "PEERPODS_LIMIT_PER_NODE", "TLS_MIN_VERSION", "TLS_CIPHER_SUITES",
	"CACERT_FILE", "CERT_FILE", "CERT_KEY", "NODE_NAME", "POD_NAMESPACE", "RELAY_EXTERNAL", "KUBELET_KUBECONFIG", "PROBE_ADDRESS", "PODS_DIR", "REMOTE_HYPERVISOR_ENDPOINT"}

func adaptorConfig() object {
	properties := object{}
	names := append(command.Env(), controller.AdoptKey)
	for _, key := range upstream.KeysOf("") {
		names = append(names, key.Name)
	}
	for _, name := range names {
		if !slices.Contains(structured, name) {
			properties[name] = object{"type": "string"}
		}
	}
	return object{
		"type": "object", "description": "settings of the adaptor by their variables, docs/reference/cloud-api-adaptor.md",
		"properties": properties, "additionalProperties": false,
		// OpenTelemetry's own: traces go where these say.
		"patternProperties": object{"^OTEL_": object{"type": "string"}},
	}
}
