// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

// dump returns what a real containerd makes of the node's configuration. It
// starts nothing.
func (n *node) dump(program string) map[string]any {
	n.t.Helper()
	dir := n.t.TempDir()
	for path, text := range n.tree() {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755); err != nil {
			n.t.Fatal(err)
		}
		text = strings.ReplaceAll(text, `imports = ["/etc`, `imports = ["`+dir+`/etc`)
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	out, err := exec.Command(program, "--config", filepath.Join(dir, n.Config), "config", "dump").Output()
	if err != nil {
		n.t.Fatalf("%v\n%s", err, out)
	}
	var all map[string]any
	if err := toml.Unmarshal(out, &all); err != nil {
		n.t.Fatal(err)
	}
	delete(all, "imports") // the files that were read, below dir
	if runc, _ := handlers(all)["runc"].(map[string]any); runc != nil {
		runc["options"] = set(runc["options"])
	}
	return all
}

// set returns the options that say anything.
func set(options any) map[string]any {
	some := map[string]any{}
	for key, value := range options.(map[string]any) {
		if value != "" && value != false && value != int64(0) {
			some[key] = value
		}
	}
	return some
}

// handlers returns the runtime handlers of a dump.
func handlers(dump map[string]any) map[string]any {
	plugins := dump["plugins"].(map[string]any)
	for _, name := range []string{criVersion3, criVersion2} {
		if cri, _ := plugins[name].(map[string]any); cri != nil {
			return cri["containerd"].(map[string]any)["runtimes"].(map[string]any)
		}
	}
	return nil
}

// TestContainerdUnderstands asks the containerd of this machine, or the one that
// OUTRIGGER_TEST_CONTAINERD names: with the handler everything else is as
// before, imports included.
func TestContainerdUnderstands(t *testing.T) {
	program, err := exec.LookPath(cmp.Or(os.Getenv("OUTRIGGER_TEST_CONTAINERD"), "containerd"))
	if err != nil {
		t.Skip("containerd is not on this machine: run `make setup`, or set OUTRIGGER_TEST_CONTAINERD")
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range nodes {
		t.Run(name, func(t *testing.T) {
			if c.table == criVersion3 && strings.Contains(string(version), " 1.") {
				t.Skip("containerd 1.x reads no version 3: set OUTRIGGER_TEST_CONTAINERD to one of 2.x")
			}
			n := newNode(t, c.files)
			if len(c.files) == 0 { // containerd 1 dumps nothing without a file
				if err := os.MkdirAll(filepath.Dir(n.path(n.Config)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(n.path(n.Config), []byte("version = 2\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := n.dump(program)
			if len(c.files) == 0 {
				if err := os.Remove(n.path(n.Config)); err != nil {
					t.Fatal(err)
				}
			}
			n.install()
			after := n.dump(program)
			ours, _ := handlers(after)[n.Handler].(map[string]any)
			if ours["runtime_type"] != runtimeType || gocmp.Diff([]any{"io.katacontainers.*", "outrigger.dev/*"}, ours["pod_annotations"]) != "" || ours["privileged_without_host_devices"] != true {
				t.Errorf("the handler is %v", ours)
			}
			delete(handlers(after), n.Handler)
			if diff := gocmp.Diff(before, after); diff != "" || handlers(after)["runc"] == nil {
				t.Errorf("runc is %v; what else has changed:\n%s", handlers(after)["runc"], diff)
			}
		})
	}
}
