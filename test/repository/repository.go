// SPDX-License-Identifier: Apache-2.0

// Package repository looks at the files around the code: workflows, forms,
// links of documents, versions of modules.
package repository

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decode reads one document strictly, as GitHub does.
func decode(data []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(into); err != nil {
		return err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one document")
	}
	return nil
}

var target = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)

// Targets returns the targets of the makefiles by name.
func Targets(makefiles ...string) (map[string]bool, error) {
	found := map[string]bool{}
	for _, file := range makefiles {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range target.FindAllSubmatch(data, -1) {
			found[string(m[1])] = true
		}
	}
	return found, nil
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// BrokenLinks returns the links of a document to files that are not there.
func BrokenLinks(document string) ([]string, error) {
	data, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	var broken []string
	for _, m := range link.FindAllSubmatch(withoutCode(data), -1) {
		path, _, _ := strings.Cut(string(m[1]), "#")
		if path == "" || strings.Contains(path, ":") {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(document), filepath.FromSlash(path))); err != nil {
			broken = append(broken, string(m[1]))
		}
	}
	return broken, nil
}

var code = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")

func withoutCode(document []byte) []byte { return code.ReplaceAll(document, nil) }

var requirement = regexp.MustCompile(`(?m)^(?:require )?\t?(\S+) (v\S+)(?: // indirect)?$`)

// replacement is of a module by another version of itself, as Kubernetes' own have it.
var replacement = regexp.MustCompile(`(?m)^(?:replace )?\t?(\S+) => (\S+) (v\S+)$`)

// Requirements returns the version of each module that a go.mod requires, or that replaces it.
func Requirements(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, m := range requirement.FindAllSubmatch(data, -1) {
		versions[string(m[1])] = string(m[2])
	}
	for _, m := range replacement.FindAllSubmatch(data, -1) {
		module := string(m[1])
		if _, required := versions[module]; required && module == string(m[2]) {
			versions[module] = string(m[3])
		}
	}
	return versions, nil
}

// Differences returns the modules that both require, in different versions.
func Differences(a, b map[string]string) []string {
	var differ []string
	for _, module := range slices.Sorted(maps.Keys(a)) {
		if other, both := b[module]; both && other != a[module] {
			differ = append(differ, fmt.Sprintf("%s %s and %s", module, a[module], other))
		}
	}
	return differ
}
