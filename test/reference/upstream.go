// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/outrigger/outrigger/internal/upstream"
)

// upstreamTable returns what the chart warns of, as JSON.
func upstreamTable() ([]byte, error) {
	table := object{}
	var values []upstream.Value
	for _, v := range upstream.Values() {
		if v.Becomes == upstream.None || v.Becomes == upstream.Refused {
			values = append(values, v)
		}
	}
	var keys []object
	for _, k := range upstream.Keys() {
		if warning := k.Warning(); warning != "" {
			keys = append(keys, object{"provider": k.Provider, "name": k.Name, "warning": warning})
		}
	}
	table["values"], table["keys"] = values, keys
	data, err := json.MarshalIndent(table, "", "  ")
	return append(data, '\n'), err
}

const upstreamAbout = `# Settings of Confidential Containers' cloud-api-adaptor

What each setting of the releases v0.8 to v0.22 is here: the chart takes its values, and the adaptor its ConfigMap ([installing](../install.md)).
"Same" has the same name and meaning. Whatever has no effect is warned of: by the adaptor when it starts, and by the chart in its notes.

## Values of the chart

| value | here | |
|---|---|---|
`

// upstreamPage writes both tables.
func upstreamPage(w io.Writer) {
	fmt.Fprint(w, generated, upstreamAbout)
	for _, v := range upstream.Values() {
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", v.Path, become(v.Becomes), v.Advice)
	}
	before := "none"
	for _, k := range upstream.Keys() {
		if k.Provider != before {
			before = k.Provider
			fmt.Fprintf(w, "\n## Keys of %s\n\n| key | releases | here | |\n|---|---|---|---|\n", cmp.Or(k.Provider, "every provider"))
		}
		place := ""
		if k.Secret {
			place = " (Secret)"
		}
		fmt.Fprintf(w, "| `%s`%s | %s | %s | %s |\n", k.Name, place, releases(k), become(k.Becomes), k.Advice)
	}
}

const upstreamDockerAbout = `# Fields of Cluster API's Docker provider

What each field of its kinds is here, in v1beta1 and v1beta2; templates have them below ` + "`spec.template.spec`" + `. [Moving from Cluster API's Docker
provider](../migrate-capd.md) says how to move.

| kind | field of spec | here | |
|---|---|---|---|
`

func upstreamDockerPage(w io.Writer) {
	fmt.Fprint(w, generated, upstreamDockerAbout)
	for _, f := range upstream.DockerFields() {
		fmt.Fprintf(w, "| %s | `%s` | %s | %s |\n", f.Kind, f.Path, become(f.Becomes), f.Advice)
	}
}

// become returns what became of a setting, for people.
func become(text string) string {
	switch text {
	case upstream.Same, upstream.Refused:
		return text
	case upstream.None:
		return "no effect"
	}
	return "`" + text + "`"
}

func releases(k upstream.Key) string {
	switch k.Last {
	case "":
		return "since " + k.First
	case k.First:
		return k.First
	}
	return k.First + " to " + k.Last
}
