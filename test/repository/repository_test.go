// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	return files
}

func TestWorkflows(t *testing.T) {
	makefiles := []string{filepath.Join(root, "Makefile")}
	for _, line := range strings.Split(string(read(t, "Makefile")), "\n") {
		if file, is := strings.CutPrefix(line, "include "); is {
			makefiles = append(makefiles, filepath.Join(root, file))
		}
	}
	targets, err := Targets(makefiles...)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range glob(t, ".github/workflows/*") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range WorkflowFaults(data, targets) {
			t.Errorf("%s: %s", file, fault)
		}
	}
}

func TestWorkflowFaults(t *testing.T) {
	const sound = `
name: x
on: push
permissions: {contents: read}
jobs:
  a:
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@v5
      - run: make lint test VERSION="$TAG" KEY=<(printf %s "$KEY") A=b
`
	for name, tc := range map[string]struct{ old, new, want string }{
		"sound":         {"", "", ""},
		"no YAML":       {"on: push", "\ton: push", "yaml"},
		"two documents": {"on: push", "on: push\n---\na: b", "more than one"},
		"no jobs":       {"jobs:", "work:", "jobs are missing"},
		"writes":        {"contents: read", "contents: write", "permissions"},
		"more rights":   {"    timeout", "    permissions: {packages: write}\n    timeout", "of its own"},
		"endless":       {"timeout-minutes: 5", "name: a", "timeout-minutes"},
		"other action":  {"actions/checkout@v5", "somebody/checkout@v5", "not an action"},
		"no version":    {"checkout@v5", "checkout@main", "not an action"},
		"no target":     {"make lint test", "make lint tests", "no target tests"},
		"no make":       {"make lint", "go test ./... lint", "not make"},
		"one more":      {"A=b", "A=b; rm -rf x", "not make"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := strings.Join(WorkflowFaults([]byte(strings.Replace(sound, tc.old, tc.new, 1)), map[string]bool{"lint": true, "test": true}), "\n")
			if tc.want == "" && faults != "" || !strings.Contains(faults, tc.want) {
				t.Errorf("faults %q, want %q", faults, tc.want)
			}
		})
	}
}

func TestIssueForms(t *testing.T) {
	for _, file := range glob(t, ".github/ISSUE_TEMPLATE/*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range FormFaults(data) {
			t.Errorf("%s: %s", file, fault)
		}
	}
	var config struct {
		Contacts []struct{ Name, URL, About string } `yaml:"contact_links"`
	}
	if err := decode(read(t, ".github/ISSUE_TEMPLATE/config.yml"), &config); err != nil || len(config.Contacts) == 0 {
		t.Errorf("config.yml: %+v, %v", config, err)
	}
}

func TestFormFaults(t *testing.T) {
	const sound = "name: x\ndescription: y\nbody:\n- {type: input, id: a, attributes: {label: A}}\n- {type: dropdown, id: b, attributes: {label: B, options: [c]}}\n"
	if faults := FormFaults([]byte(sound)); len(faults) > 0 {
		t.Errorf("%q", faults)
	}
	for old, wrong := range map[string]string{"name: x": "", "id: b": "id: a", "type: input": "type: text", "label: A": "title: A", "options: [c]": "options: []", "body:": "body"} {
		if faults := FormFaults([]byte(strings.Replace(sound, old, wrong, 1))); len(faults) == 0 {
			t.Errorf("%q in the place of %q is not found to be a fault", wrong, old)
		}
	}
}

func TestLinks(t *testing.T) {
	documents := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "testdata"}, entry.Name()):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		documents++
		broken, err := BrokenLinks(path)
		for _, link := range broken {
			t.Errorf("%s: the link %s leads nowhere", path, link)
		}
		return err
	})
	if err != nil || documents < 10 {
		t.Errorf("%d documents, %v", documents, err)
	}
}

func TestBrokenLinks(t *testing.T) {
	document := filepath.Join(t.TempDir(), "a.md")
	text := "[a](a.md#b) [b](b.md) [c](#d) [e](https://example.com/f) `[g](h)`\n```\n[i](j)\n```\n[k](l/m.md#n)\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if broken, err := BrokenLinks(document); err != nil || !slices.Equal(broken, []string{"b.md", "l/m.md#n"}) {
		t.Errorf("%q, %v", broken, err)
	}
}

// TestModulesHaveOneVersion keeps the modules that tests build beside ours at
// our versions: what they share is compiled once.
func TestModulesHaveOneVersion(t *testing.T) {
	modules := []string{"go.mod", "test/kube/go.mod", "test/capi/core/go.mod", "test/capi/upstream/go.mod", "test/vsphereccm/programs/go.mod", "images/node/kube/go.mod"}
	requirements := make([]map[string]string, len(modules))
	for i, file := range modules {
		var err error
		if requirements[i], err = Requirements(filepath.Join(root, file)); err != nil || len(requirements[i]) < 50 {
			t.Fatalf("%s: %d requirements, %v", file, len(requirements[i]), err)
		}
		for j := range i {
			for _, text := range Differences(requirements[j], requirements[i]) {
				t.Errorf("%s and %s: %s; raise the lower with go get, and go mod tidy", modules[j], file, text)
			}
		}
	}
}

func TestDifferences(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go.mod")
	text := "module x\n\ngo 1.26.0\n\nrequire a.b/c v1.0.0\n\nrequire (\n\ta.b/d v2.0.0-rc.1\n\ta.b/e v3.0.0+incompatible // indirect\n\ta.b/f v4.0.0\n)\n\nreplace (\n\ta.b/g => a.b/g v5.0.0\n\ta.b/f => a.b/f v4.0.1\n)\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := Requirements(file)
	if err != nil || len(found) != 4 {
		t.Fatalf("%v, %v", found, err)
	}
	got := Differences(found, map[string]string{"a.b/c": "v1.0.1", "a.b/d": "v2.0.0-rc.1", "a.b/e": "v3.0.0", "a.b/f": "v4.0.1", "a.b/z": "v1.0.0"})
	if want := []string{"a.b/c v1.0.0 and v1.0.1", "a.b/e v3.0.0+incompatible and v3.0.0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
