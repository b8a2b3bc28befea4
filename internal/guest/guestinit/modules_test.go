// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadModules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "modules.order")
	if err := os.WriteFile(file, []byte("early a.ko\nlate b-c.ko a.ko\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := readModules(file, "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	want := []moduleFile{{stage: "early", file: "a.ko", deps: []string{}}, {stage: "late", file: "b-c.ko", deps: []string{"a.ko"}}}
	if diff := cmp.Diff(want, m.order, cmp.AllowUnexported(moduleFile{})); diff != "" {
		t.Error(diff)
	}
	if n, err := m.load(stageEarly); n != 0 || err == nil {
		t.Errorf("a missing file loaded: %d, %v", n, err)
	}
	if n, err := m.load(stageEarly); n != 0 || err != nil {
		t.Errorf("second load of a stage: %d, %v; want nothing to do", n, err)
	}
	if err := m.loadNamed("nosuch"); err == nil {
		t.Error("an unknown module loaded")
	}
}

func TestResolveAlias(t *testing.T) {
	const aliases = "fs-overlay overlay\nrtnl-link-vxlan vxlan\nblock-major-8-* sd_mod\nnet-pf-9 one\nnet-pf-9 two\n"
	for name, want := range map[string][]string{
		"fs-overlay":       {"overlay"},
		"block-major-8-16": {"sd_mod"},
		"net-pf-9":         {"one", "two"},
		"fs-btrfs":         nil,
		"[":                nil,
	} {
		if diff := cmp.Diff(want, resolveAlias(aliases, name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
