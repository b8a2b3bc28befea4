// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes the settings as a Markdown table.
func (s Schema) WriteMarkdown(w io.Writer) { writeMarkdown(w, "-", s.Fields) }

func writeMarkdown(w io.Writer, dash string, fields []Field) {
	fmt.Fprint(w, "| flag | variable | default | meaning |\n|---|---|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", code(dash, f.Flag), code("", f.Env), code("", f.Default), strings.ReplaceAll(f.meaning(), "|", `\|`))
	}
}

func code(prefix, text string) string {
	if text == "" {
		return ""
	}
	return "`" + prefix + text + "`"
}

// WriteHelp writes the settings for a terminal.
func (s Schema) WriteHelp(w io.Writer) { writeHelp(w, "-", s.Fields) }

func writeHelp(w io.Writer, dash string, fields []Field) {
	for _, f := range fields {
		name := ""
		if f.Flag != "" {
			name = strings.TrimSpace(dash+f.Flag+" "+f.placeholder()) + " "
		}
		if f.Env != "" {
			name += "[" + f.Env + "]"
		}
		fmt.Fprintf(w, "  %s\n      %s", strings.TrimSpace(name), f.meaning())
		if f.Default != "" && f.Default != "false" {
			fmt.Fprintf(w, " (default %s)", f.Default)
		}
		fmt.Fprintln(w)
	}
}

// placeholder stands for the value in help.
func (f Field) placeholder() string {
	switch f.Type {
	case Bool:
		return ""
	case Int:
		return "N"
	case Duration:
		return "DURATION"
	case List:
		return "A,B,..."
	case Map:
		return "K=V,..."
	}
	if len(f.Choices) > 0 {
		return strings.Join(f.Choices, "|")
	}
	return "TEXT"
}

// meaning returns the usage with everything that the schema adds to it.
func (f Field) meaning() string {
	text := f.Usage
	if f.Unit != "" {
		text += "; in " + f.Unit
	}
	if len(f.Choices) > 0 {
		text += "; one of " + strings.Join(f.Choices, ", ")
	}
	if f.Type != Duration {
		text += f.bounds("; ")
	}
	if len(f.Labels) > 0 {
		text += "; default the node's label " + strings.Join(f.Labels, ", else ")
	}
	if f.Required {
		text += "; required"
	}
	if f.Secret {
		text += "; secret"
	}
	return text
}

// WriteHelmValues writes the settings as values of the Helm chart: those of
// peer-pods-cm under providerConfigs, secrets under providerSecrets, each
// commented out with its default.
func (s Schema) WriteHelmValues(w io.Writer) {
	fmt.Fprintf(w, "# Values for provider %s; what is commented out has the default shown.\nprovider: %s\n", s.Provider, s.Provider)
	for _, part := range []struct {
		key    string
		secret bool
	}{{"providerConfigs", false}, {"providerSecrets", true}} {
		var fields []Field
		for _, f := range s.Fields {
			if f.Env != "" && f.Secret == part.secret {
				fields = append(fields, f)
			}
		}
		if len(fields) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s:\n  %s:\n", part.key, s.Provider)
		for _, f := range fields {
			comment := "# "
			if f.Required && f.Default == "" {
				comment = ""
			}
			fmt.Fprintf(w, "    # %s\n    %s%s: %s\n", f.meaning(), comment, f.Env, quote(f.Default))
		}
	}
}

// quote writes a YAML double-quoted scalar, of which JSON's is one form.
func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always has a form
	}
	return string(data)
}

// JSONSchema returns a JSON schema (draft 2020-12) of the object that maps
// variables to values, all of them text as in a ConfigMap.
func (s Schema) JSONSchema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range s.Fields {
		if f.Env == "" {
			continue
		}
		property := map[string]any{"type": "string", "description": f.meaning()}
		if f.Default != "" {
			property["default"] = f.Default
		}
		if pattern := f.pattern(); pattern != "" {
			property["pattern"] = pattern
		}
		if len(f.Choices) > 0 {
			property["enum"] = append([]string{""}, f.Choices...)
		}
		if f.Required && f.Default == "" {
			required = append(required, f.Env)
			property["minLength"] = 1
		}
		properties[f.Env] = property
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// pattern returns a regular expression for the text; empty counts as unset.
func (f Field) pattern() string {
	switch f.Type {
	case Int:
		return `^(-?[0-9]+)?$`
	case Bool:
		return `^(|0|1|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Nn][Oo]|[Oo][Ff][Ff])$`
	case Duration:
		return `^(-?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*$|^0$`
	}
	return ""
}
