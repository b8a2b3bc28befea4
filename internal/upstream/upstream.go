// SPDX-License-Identifier: Apache-2.0

// Package upstream has the settings of Confidential Containers' cloud-api-adaptor, v0.8 to v0.22, and the fields of
// Cluster API's Docker provider, up to v1.14, and what each is here. The tables are data, from which come the adaptor's
// warnings, what the chart takes, the plan of `kubectl outrigger migrate`, and pages of docs/reference.
package upstream

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"strings"
)

//go:embed keys.csv
var keysTable string

//go:embed values.csv
var valuesTable string

//go:embed docker.csv
var dockerTable string

// What became of a setting, where it is not the name of another one.
const (
	// Same is a setting that has its name and meaning here.
	Same = "same"
	// None is a setting without effect.
	None = "none"
	// Refused is a value of the chart that is an error unless it is upstream's default.
	Refused = "refused"
)

// Key is a key of ConfigMap peer-pods-cm or Secret peer-pods-secret.
type Key struct {
	// Provider is the one whose key it is, by our name; empty: the adaptor's own.
	Provider, Name string
	// Secret reports whether upstream keeps it in the Secret.
	Secret bool
	// First and Last are the minor releases that had it, such as v0.8; an empty Last: it is still there.
	First, Last string
	// Becomes is Same, None or the key that has the meaning here.
	Becomes string
	// Advice says what to know or do; it may be empty.
	Advice string
}

// Value is a value of upstream's Helm chart.
type Value struct {
	// Path is the keys to it with dots between. KEY and PROVIDER in it stand for any.
	Path string `json:"path"`
	// Default is upstream's, where that needs no advice.
	Default string `json:"default"`
	// Becomes is Same, None, Refused, or the path of the value here.
	Becomes string `json:"becomes"`
	Advice  string `json:"advice"`
}

// Keys returns all keys, sorted by provider and name; those of the adaptor come first.
func Keys() []Key {
	var all []Key
	for _, r := range rows(keysTable) {
		all = append(all, Key{Provider: r[0], Name: r[1], Secret: r[2] != "", First: r[3], Last: r[4], Becomes: r[5], Advice: r[6]})
	}
	return all
}

// KeysOf returns the keys of the adaptor and those of a provider.
func KeysOf(provider string) []Key {
	var all []Key
	for _, k := range Keys() {
		if k.Provider == "" || k.Provider == provider {
			all = append(all, k)
		}
	}
	return all
}

// Values returns the values of upstream's chart.
func Values() []Value {
	var all []Value
	for _, r := range rows(valuesTable) {
		all = append(all, Value{Path: r[0], Default: r[1], Becomes: r[2], Advice: r[3]})
	}
	return all
}

// Field is a field of the kinds of Cluster API's Docker provider, the same in its versions v1beta1 and v1beta2.
type Field struct {
	Kind, Path string
	// Becomes is Same or None.
	Becomes, Advice string
}

// DockerFields returns the fields of DockerCluster, DockerMachine and DockerMachinePool, and of their templates.
func DockerFields() []Field {
	var all []Field
	for _, r := range rows(dockerTable) {
		all = append(all, Field{Kind: r[0], Path: r[1], Becomes: r[2], Advice: r[3]})
	}
	return all
}

// rows returns a table of this package without its head.
func rows(table string) [][]string {
	reader := csv.NewReader(strings.NewReader(table))
	reader.Comment = '#'
	all, err := reader.ReadAll()
	if err != nil {
		panic(fmt.Sprintf("a table of this package: %v", err)) // TestTables reads them
	}
	return all[1:]
}

// Renamed reports whether the key has another name here.
func (k Key) Renamed() bool { return k.Becomes != Same && k.Becomes != None }

// Warning returns what to do about a key that is set and has no effect or another name; empty if nothing.
func (k Key) Warning() string {
	switch {
	case k.Becomes == None:
		return fmt.Sprintf("%s has no effect and can be removed: %s", k.Name, k.Advice)
	case k.Renamed():
		return fmt.Sprintf("%s is an earlier name of %s, and counts while that is not set: rename it", k.Name, k.Becomes)
	}
	return ""
}

// Warnings returns those of the keys that are set. A setting that is off needs none.
func Warnings(provider string, getenv func(string) string) []string {
	var all []string
	for _, k := range KeysOf(provider) {
		text, warning := getenv(k.Name), k.Warning()
		if warning != "" && text != "" && !strings.EqualFold(text, "false") {
			all = append(all, warning)
		}
	}
	return all
}

// Getenv returns a getenv that knows the earlier names of keys: a key that is not set has the value of the
// one that had its meaning.
func Getenv(provider string, getenv func(string) string) func(string) string {
	earlier := map[string]string{}
	for _, k := range KeysOf(provider) {
		if k.Renamed() {
			earlier[k.Becomes] = k.Name
		}
	}
	return func(name string) string {
		text := getenv(name)
		if former := earlier[name]; text == "" && former != "" {
			return getenv(former)
		}
		return text
	}
}
