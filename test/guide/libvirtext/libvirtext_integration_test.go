// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package libvirtext follows the guide of examples/libvirt-ext.
package libvirtext

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/guide"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

func TestMain(m *testing.M) { testns.Main(m) }

// TestLibvirtExtGuide runs every command of the guide, from an empty folder to
// pods by way of both plugins and both schemes, without any network but
// libvirt's. Then the plugins that it built are loaded as by a controller.
func TestLibvirtExtGuide(t *testing.T) {
	tier.OnlyAll(t) // the daemon and all SDKs are compiled again, with cgo
	testns.RequireRoot(t)
	for _, tool := range []string{"bash", "gcc", "git", "go", "make", "virsh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v; run: make setup", err)
		}
	}
	blocks := read(t)
	d := libvirtd.Start(t, libvirtd.Options{})
	dir := stand.Dir(t)
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	env := append(environment(t, dir), d.Env()...)
	for _, name := range []string{"relay.log", "adaptor.log"} {
		stand.ShowOnFailure(t, "/run/libvirt-ext/"+name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	if err := guide.Run(ctx, empty, env, blocks); err != nil {
		t.Fatalf("examples/libvirt-ext/README.md: %v", err)
	}
	d.WantNothing(t)
	wantNothing(t, dir)

	module := filepath.Join(empty, "outrigger/examples/libvirt-ext")
	t.Run("ControllerLoadsTheSameFile", func(t *testing.T) { loadAll(t, module, env) })
	t.Run("ImagesRun", func(t *testing.T) { runImages(t, filepath.Join(module, "bin")) })
}

func read(t *testing.T) []guide.Block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(stand.Root(), "examples/libvirt-ext/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := guide.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// environment is that of somebody who has just logged in, with the caches of
// this machine and no way to any other. A clone of the published repository
// gets this tree.
func environment(t *testing.T, dir string) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "XDG_CACHE_HOME=" + cache,
		"GOCACHE=" + goEnv(t, "GOCACHE"), "GOMODCACHE=" + goEnv(t, "GOMODCACHE"), "GOPROXY=off", "GOTOOLCHAIN=local",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + repository(t, dir) + ".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/outrigger/outrigger",
	}
	return env
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(stand.Run(t, "go", "env", name))
}

// repository makes one of the tree as it is, with what is not committed yet.
func repository(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(dir, "outrigger.git")
	script := `set -euo pipefail
cd "$1"
mkdir "$2"
git ls-files -z --cached --others --exclude-standard | sort -zu |
  while IFS= read -r -d '' f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done | tar -c --null -T - | tar -x -C "$2"
cd "$2"
git init -q
git add -A
git -c user.name=test -c user.email=test@example.com commit -q -m tree`
	stand.Run(t, "bash", "-c", script, "repository", stand.Root(), to)
	return to
}

// wantNothing looks for processes of the guide that still run.
func wantNothing(t *testing.T, dir string) {
	t.Helper()
	paths, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, p := range paths {
		program, _ := os.Readlink(p)
		if strings.HasPrefix(program, dir) || strings.Contains(program, "memfd:libvirt-ext") {
			t.Errorf("%s still runs", program)
		}
	}
	if _, err := os.Stat("/run/libvirt-ext"); err == nil {
		t.Error("/run/libvirt-ext is left")
	}
}

// loadAll builds what stands for the controller as the guide builds the daemon,
// and has it load the files that the guide has built.
func loadAll(t *testing.T, module string, env []string) {
	t.Helper()
	for _, tc := range []struct{ name, cgo, file, want string }{
		{"Process", "0", "bin/process/libvirt-ext", "as process plugin"},
		{"GoPlugin", "1", "bin/so/libvirt-ext.so", "as Go plugin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const script = `set -e
CGO_ENABLED=$1 go build -trimpath -ldflags '-s -w' -o bin/load github.com/outrigger/outrigger/test/guide/libvirtext/load
export CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH="$PWD/$2" CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH="$(sha256sum "$2" | cut -d ' ' -f 1)"
ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN=true bin/load libvirt-ext`
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script, "load", tc.cgo, tc.file)
			cmd.Dir, cmd.Env = module, env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{tc.want, "[Lister Getter ConsoleReader PowerController NodeAddresser]", "instances: 0"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}
