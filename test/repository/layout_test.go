// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPartsImportWhatTheyMay(t *testing.T) {
	forbidden, err := ForbiddenImports(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forbidden {
		t.Errorf("%s: docs/architecture.md says who imports whom", f)
	}
}

// TestRoomsAreThere: a room that has moved is still guarded.
func TestRoomsAreThere(t *testing.T) {
	for _, r := range Rooms {
		for _, folder := range append([]string{r.Folder}, r.May...) {
			if _, err := os.Stat(filepath.Join(root, folder)); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for from, imports := range map[string]map[string]bool{
		"provider/kit/poll":            {"provider": true, "provider/fake": true, "internal/version": false, "providers/aws": false},
		"providers/aws":                {"provider/kit/poll": true, "internal/version": true, "providers/azure": false, "internal/nodes/ccm": false},
		"internal/peerpods/adaptor":    {"internal/peerpods/relay": true, "internal/protocol/agent": true, "internal/machines/docker": false, "internal/guest/agent": false, "providers/qemu": false},
		"internal/guest/forwarder":     {"internal/peerpods/podtls": true, "internal/peerpods/relay": false},
		"internal/machines/reconciler": {"api/infrastructure/v1beta2": true, "internal/peerpods/claims": false, "internal/nodes/ccm": false},
		"internal/nodes/ccm":           {"internal/loadbalancer": true, "internal/machines/docker": false, "api/peerpod/v1alpha1": false},
		"internal/cli/kubectl":         {"internal/cli/doctor": true, "internal/peerpods/adaptor": false},
		"internal/redact":              {"internal/version": true, "internal/cli": false},
		"machines":                     {"internal/machines/command": true, "internal/machines/docker": false},
		"cmd/outrigger":                {"internal/cli": true, "providers/qemu": true},
		"test/stand":                   {"internal/localnet": true, "internal/machines/docker": true},
	} {
		for imported, allowed := range imports {
			tree := t.TempDir()
			write(t, filepath.Join(tree, from, "x.go"), "package x\n\nimport _ \""+Module+"/"+imported+"\"\n")
			write(t, filepath.Join(tree, from, "x_test.go"), "package x\n\nimport _ \""+Module+"/internal/anything\"\n")
			got, err := ForbiddenImports(tree)
			var want []string
			if !allowed {
				want = []string{filepath.Join(from, "x.go") + " imports " + imported}
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s imports %s: %q, %v, want %q", from, imported, got, err, want)
			}
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
