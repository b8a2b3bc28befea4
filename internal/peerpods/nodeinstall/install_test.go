// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// node is a folder that stands for a node's file system.
type node struct {
	*Installer
	t        *testing.T
	restarts int
	refuse   error // of the next restart
}

func newNode(t *testing.T, files map[string]string) *node {
	t.Helper()
	root := t.TempDir()
	shim := filepath.Join(t.TempDir(), "shim")
	n := &node{t: t, Installer: &Installer{
		Root: root, Handler: "kata-remote", Config: "/etc/containerd/config.toml", Bin: "/usr/local/bin", Shim: shim,
		Log: slog.New(slog.DiscardHandler),
	}}
	n.Restart = func(context.Context) error {
		n.restarts++
		err := n.refuse
		n.refuse = nil
		return err
	}
	if err := os.WriteFile(shim, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// files returns all of the node with their contents.
func (n *node) tree() map[string]string {
	n.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(n.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, n.Root)] = string(text)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

func (n *node) install() {
	n.t.Helper()
	if err := n.Install(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

const (
	config2 = "version = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"pause:7\"\n"
	config3 = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n\n[plugins.'io.containerd.cri.v1.runtime']\n  enable_selinux = true\n"
)

// nodes are what may be found.
var nodes = map[string]struct {
	files map[string]string
	// target gets the handler, below table.
	target, table string
}{
	"no file":                {nil, "/etc/containerd/config.toml", criVersion2},
	"version 2":              {map[string]string{"/etc/containerd/config.toml": config2}, "/etc/containerd/config.toml", criVersion2},
	"version 3":              {map[string]string{"/etc/containerd/config.toml": config3}, "/etc/containerd/config.toml", criVersion3},
	"nothing of the plugin":  {map[string]string{"/etc/containerd/config.toml": "version = 2\nroot = \"/x\"\n"}, "/etc/containerd/config.toml", criVersion2},
	"imports something else": {map[string]string{"/etc/containerd/config.toml": config3, "/etc/containerd/conf.d/a.toml": "version = 3\n[debug]\nlevel = \"debug\"\n"}, "/etc/containerd/config.toml", criVersion3},
	"imports the plugin": {map[string]string{
		"/etc/containerd/config.toml":   "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n",
		"/etc/containerd/conf.d/a.toml": config2, "/etc/containerd/conf.d/b.toml": config2, "/etc/containerd/conf.d/c.toml": "version = 2\n",
	}, "/etc/containerd/conf.d/b.toml", criVersion2},
	"imports by a relative path": {map[string]string{
		"/etc/containerd/config.toml": "version = 2\nimports = [\"cri.toml\", \"conf.d/*.toml\"]\n", "/etc/containerd/cri.toml": config2, "/etc/containerd/conf.d/a.toml": config2,
	}, "/etc/containerd/cri.toml", criVersion2},
	"has runc and more": {map[string]string{"/etc/containerd/config.toml": config2 +
		"[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n"}, "/etc/containerd/config.toml", criVersion2},
}

func TestInstallAndUninstall(t *testing.T) {
	for name, c := range nodes {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.files)
			n.install()
			after := n.tree()
			table := "\n[plugins.\"" + c.table + "\".containerd.runtimes.\"kata-remote\"]\n"
			if !strings.Contains(after[c.target], table) || !strings.HasPrefix(after[c.target], c.files[c.target]) {
				t.Errorf("%s is\n%s", c.target, after[c.target])
			}
			if err := n.Check(); err != nil || n.restarts != 1 || after["/usr/local/bin/"+shimName] != "program" {
				t.Errorf("check: %v, %d restarts, files %v", err, n.restarts, after)
			}
			n.install()
			if diff := cmp.Diff(after, n.tree()); diff != "" || n.restarts != 1 {
				t.Errorf("%d restarts; the second time changes\n%s", n.restarts, diff)
			}
			for range 2 {
				if err := n.Uninstall(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := maps.Clone(c.files)
				if want == nil {
					want = map[string]string{}
				}
				if diff := cmp.Diff(want, n.tree()); diff != "" || n.restarts != 2 {
					t.Errorf("%d restarts; what is left\n%s", n.restarts, diff)
				}
			}
			if n.Check() == nil {
				t.Error("the check finds nothing wrong without the handler")
			}
		})
	}
}

func TestModeStays(t *testing.T) {
	n := newNode(t, map[string]string{"/etc/containerd/config.toml": config2})
	n.install()
	for path, want := range map[string]fs.FileMode{n.Config: 0o640, "/usr/local/bin/" + shimName: 0o755} {
		if info, err := os.Stat(n.path(path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// TestNewVersions replace what there is of the old one, and nothing else.
func TestNewVersions(t *testing.T) {
	n := newNode(t, map[string]string{"/etc/containerd/config.toml": config2})
	n.install()
	if err := os.WriteFile(n.Shim, []byte("new program"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.install()
	if n.restarts != 1 || n.tree()["/usr/local/bin/"+shimName] != "new program" {
		t.Errorf("a new shim: %d restarts", n.restarts)
	}
	n.ShimConfig, n.Bin = "/etc/outrigger/shim.toml", "/opt/outrigger"
	n.install()
	text := n.tree()[n.Config]
	if n.restarts != 2 || strings.Count(text, n.begin()) != 1 || !strings.Contains(text, `ConfigPath = "/etc/outrigger/shim.toml"`) || !strings.Contains(text, `runtime_path = "/opt/outrigger/`) {
		t.Errorf("%d restarts\n%s", n.restarts, text)
	}
}

// TestPluginMovesToADropIn: the handler goes where it counts.
func TestPluginMovesToADropIn(t *testing.T) {
	n := newNode(t, map[string]string{"/etc/containerd/config.toml": "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"})
	n.install()
	if err := os.MkdirAll(n.path("/etc/containerd/conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path("/etc/containerd/conf.d/cri.toml"), []byte(config2), 0o600); err != nil {
		t.Fatal(err)
	}
	n.install()
	if all := n.tree(); strings.Contains(all[n.Config], n.begin()) || !strings.Contains(all["/etc/containerd/conf.d/cri.toml"], n.begin()) || n.restarts != 2 {
		t.Errorf("%d restarts: %v", n.restarts, all)
	}
}

func TestContainerdThatDoesNotStart(t *testing.T) {
	for name, c := range nodes {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.files)
			n.refuse = errors.New("it is dead")
			if err := n.Install(t.Context()); err == nil || !strings.Contains(err.Error(), "it is dead") {
				t.Errorf("install: %v", err)
			}
			after := n.tree()
			delete(after, "/usr/local/bin/"+shimName)
			want := c.files
			if want == nil {
				want = map[string]string{}
			}
			if diff := cmp.Diff(want, after); diff != "" || n.restarts != 2 {
				t.Errorf("%d restarts; left:\n%s", n.restarts, diff)
			}
			n.install()
		})
	}
}

// TestInterrupted: killed after the file changed, before containerd restarted.
func TestInterrupted(t *testing.T) {
	n := newNode(t, map[string]string{"/etc/containerd/config.toml": config2})
	restart := n.Restart
	func() {
		defer func() { _ = recover() }()
		n.Restart = func(context.Context) error { panic("killed") }
		_ = n.Install(t.Context())
	}()
	n.Restart = restart
	if err := n.Check(); err == nil || !strings.Contains(err.Error(), "has not been restarted") {
		t.Errorf("check: %v", err)
	}
	n.install()
	if err := n.Check(); err != nil || n.restarts != 1 {
		t.Errorf("check: %v, %d restarts", err, n.restarts)
	}
	if err := n.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{n.Config: config2}, n.tree()); diff != "" {
		t.Error(diff)
	}
}

func TestRefusals(t *testing.T) {
	handler := "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata-remote]\nruntime_type = \"io.containerd.kata.v2\"\n"
	for name, c := range map[string]struct{ text, says string }{
		"version 1":          {"[plugins.cri]\n", "containerd config migrate"},
		"no plugin":          {"version = 2\ndisabled_plugins = [\"cri\"]\n", "disabled_plugins"},
		"another's":          {config2 + handler, "io.containerd.kata.v2"},
		"no TOML":            {"version = = 2\n", "config.toml"},
		"half of ours":       {config2 + "# BEGIN runtime handler kata-remote, kept by Outrigger's node-installer\n", "by hand"},
		"plugins in one row": {"version = 2\nplugins = {\"io.containerd.grpc.v1.cri\" = {sandbox_image = \"x\"}}\n", "docs/shim.md"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, map[string]string{"/etc/containerd/config.toml": c.text})
			err := n.Install(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if n.tree()[n.Config] != c.text || n.restarts != 0 {
				t.Errorf("%d restarts\n%s", n.restarts, n.tree()[n.Config])
			}
		})
	}
	n := newNode(t, map[string]string{"/etc/elsewhere.toml": config2, "/etc/containerd/x": ""})
	if err := os.Symlink("/etc/elsewhere.toml", n.path(n.Config)); err != nil {
		t.Fatal(err)
	}
	if err := n.Install(t.Context()); err == nil || !strings.Contains(err.Error(), "-config") {
		t.Errorf("a link: %v", err)
	}
}

// TestTheSameByHand is left where it is, also when ours goes.
func TestTheSameByHand(t *testing.T) {
	n := newNode(t, nil)
	text := config2 + strings.ReplaceAll(n.block(criVersion2, true), "#", "# by hand:")
	n = newNode(t, map[string]string{"/etc/containerd/config.toml": text})
	n.install()
	if err := n.Uninstall(t.Context()); err != nil || n.tree()[n.Config] != text || n.restarts != 0 {
		t.Errorf("%v, %d restarts\n%s", err, n.restarts, n.tree()[n.Config])
	}
}

func TestCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing":        {nil, 2, "Usage"},
		"help":           {[]string{"-help"}, 0, "uninstall"},
		"version":        {[]string{"-version"}, 0, "node-installer version"},
		"other command":  {[]string{"remove"}, 1, "no command"},
		"other flag":     {[]string{"install", "-x"}, 2, "-x"},
		"handler":        {[]string{"install", "-handler", "A/b"}, 1, "-handler"},
		"relative":       {[]string{"install", "-root", "x"}, 1, "-root"},
		"argument":       {[]string{"install", "x"}, 1, "unexpected"},
		"nothing to ask": {[]string{"check", "-root", t.TempDir()}, 1, "no runtime handler"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := &Command{Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }}
			if code := cmd.Run(c.args); code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("%d, want %d and %q:\n%s", code, c.code, c.says, &out)
			}
		})
	}
}
