// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

// A cgroup file system behaves as plain folders do, as far as this goes.
func TestOnlyWhatTheDeadLeftIsRemoved(t *testing.T) {
	hierarchy, folders := t.TempDir(), t.TempDir()
	makeNode := func(name string) {
		for _, dir := range []string{
			filepath.Join(hierarchy, cgroupPrefix+name, "kubepods", "pod"), filepath.Join(folders, name),
		} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	makeNode("alive")
	lock(t, filepath.Join(folders, "alive", "lock"))
	makeNode("killed")
	if err := os.WriteFile(filepath.Join(folders, "killed", "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	makeNode("removed")
	os.Remove(filepath.Join(folders, "removed"))

	removeStale([]string{hierarchy}, folders)

	for _, dir := range []string{filepath.Join(hierarchy, cgroupPrefix+"alive", "kubepods", "pod"), filepath.Join(folders, "alive")} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("of the node that is alive: %v", err)
		}
	}
	for _, dir := range []string{
		filepath.Join(hierarchy, cgroupPrefix+"killed"), filepath.Join(folders, "killed"), filepath.Join(hierarchy, cgroupPrefix+"removed"),
	} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}
