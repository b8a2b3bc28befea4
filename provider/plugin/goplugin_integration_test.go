// SPDX-License-Identifier: Apache-2.0

//go:build integration

package plugin_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/test/testplugin"
	"github.com/outrigger/outrigger/test/tier"
)

// workshop builds hosts and Go plugins; a build is made once.
type workshop struct {
	root string // of this module
	dir  string
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("Go plugins need cgo and gcc is not there: apt-get install gcc")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return &workshop{root, t.TempDir()}
}

func (w *workshop) run(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off", "CGO_ENABLED=1")
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// host builds a program that loads plugins.
func (w *workshop) host(t *testing.T, name string, env []string, flags ...string) string {
	t.Helper()
	path := filepath.Join(w.dir, name)
	args := append(append([]string{"go", "build"}, flags...), "-o", path, "./test/testplugin/host")
	w.run(t, w.root, append([]string{"GOFLAGS=-buildvcs=false"}, env...), args...)
	return path
}

// module writes the module of a plugin that is the provider of that name. The
// extra lines go to its go.mod.
func (w *workshop) module(t *testing.T, name string, viaInit bool, extra string) string {
	t.Helper()
	dir := filepath.Join(w.dir, "src", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	gomod := read(t, filepath.Join(w.root, "go.mod"))
	gomod = strings.Replace(gomod, "module github.com/outrigger/outrigger", "module example.com/"+name, 1) +
		"\nrequire github.com/outrigger/outrigger v0.0.0\nreplace github.com/outrigger/outrigger => " + w.root + "\n" + extra
	for file, text := range map[string]string{
		"go.mod":  gomod,
		"go.sum":  read(t, filepath.Join(w.root, "go.sum")),
		"main.go": read(t, "testdata/goplugin/main.go.txt"),
		"name.go": fmt.Sprintf("package main\n\nconst name, viaInit = %q, %t\n", name, viaInit),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bare is a module whose program has only the code given.
func (w *workshop) bare(t *testing.T, name, code string) string {
	t.Helper()
	dir := w.module(t, name, false, "")
	text := "package main\n\nimport _ \"github.com/outrigger/outrigger/provider\"\n\nfunc main() {}\n\n" + code
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// build builds a module as a plugin, into a folder of its own.
func (w *workshop) build(t *testing.T, dir string, env []string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(dir)+".so")
	w.run(t, dir, env, append(append([]string{"go", "build", "-buildmode=plugin", "-o", out}, flags...), ".")...)
	return out
}

// load runs a host; the environment has only the variables given.
func loadWith(t *testing.T, host, name string, env map[string]string) (string, error) {
	t.Helper()
	temp := t.TempDir()
	cmd := exec.Command(host, name)
	cmd.Env = []string{"TMPDIR=" + temp}
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return string(out), err
}

// fails runs a host that must say all words in its error.
func fails(t *testing.T, host, so string, words ...string) {
	t.Helper()
	out, err := loadWith(t, host, strings.TrimSuffix(filepath.Base(so), ".so"), verified(t, so))
	if err == nil {
		t.Errorf("it loaded:\n%s", out)
	}
	_, sentence, _ := strings.Cut(out, "host: ")
	t.Log(sentence)
	for _, text := range words {
		if !strings.Contains(sentence, text) {
			t.Errorf("does not say %q:\n%s", text, out)
		}
	}
}

func works(t *testing.T, host, name string, env map[string]string, words ...string) {
	t.Helper()
	out, err := loadWith(t, host, name, env)
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, text := range append(words, "Go plugin by "+name) {
		if !strings.Contains(out, text) {
			t.Errorf("does not say %q:\n%s", text, out)
		}
	}
}

// TestGoPlugins builds real plugins and hosts and breaks them in each way.
func TestGoPlugins(t *testing.T) {
	w := newWorkshop(t)
	host := w.host(t, "host", nil)
	module := w.module(t, "plug", false, "")
	so := w.build(t, module, nil)
	t.Run("verified", func(t *testing.T) {
		works(t, host, "plug", verified(t, so), "Loading external plugin plug from "+so, "Successfully opened the external plugin "+so)
	})
	t.Run("folder", func(t *testing.T) { testFolder(t, w, host, so) })
	t.Run("toolchain", func(t *testing.T) {
		other := patched(t, so, runtime.Version(), "go1.26.0")
		fails(t, host, other, "Failed to open", "this program was built with "+runtime.Version(), "and the plugin with go1.26.0", "GOTOOLCHAIN="+runtime.Version())
	})
	t.Run("trimpath", func(t *testing.T) {
		tier.OnlyAll(t) // all packages are compiled twice more for it; gobinary TestCompare has its sentences
		testTrimpath(t, w, host, module, so)
	})
	t.Run("tags", func(t *testing.T) {
		fails(t, host, w.build(t, module, nil, "-tags", "protolegacy"),
			"different version of package google.golang.org/protobuf", "which both have as v", "the plugin was built with -tags=protolegacy and this program without")
		works(t, host, "plug", verified(t, w.build(t, module, nil, "-tags", "harmless")))
	})
	t.Run("cgo", func(t *testing.T) {
		// With the flags of the Makefile there is nothing to compile for it.
		static := w.host(t, "static", []string{"CGO_ENABLED=0", "GOFLAGS=" + os.Getenv("GOFLAGS")})
		fails(t, static, so, "this program is static (CGO_ENABLED=0) and cannot load Go plugins", "build the daemon with CGO_ENABLED=1", "process plugin from the same source")
		out, err := loadWith(t, static, "bad", verified(t, testplugin.Install(t, "bad", testplugin.Good)))
		if err != nil || !strings.Contains(out, "process plugin size 1 token") {
			t.Errorf("the static host and a process plugin: %v:\n%s", err, out)
		}
	})
	t.Run("version", func(t *testing.T) { testVersion(t, w, host, so) })
	t.Run("nothing registered", func(t *testing.T) {
		fails(t, host, w.build(t, w.bare(t, "nothing", ""), nil), "Failed to find the InitCloud function", "provider.AddCloudProvider")
		fails(t, host, w.build(t, w.bare(t, "panics", "func InitCloud() { panic(\"no luck\") }"), nil), "its initialization panicked: no luck")
		fails(t, host, w.build(t, w.bare(t, "typed", "func InitCloud(int) {}"), nil), "must be func InitCloud()")
	})
	t.Run("other contents", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "plug.so")
		if err := os.Link(host, program); err != nil {
			t.Fatal(err)
		}
		fails(t, host, program, "the file was built with -buildmode=exe", "build it with -buildmode=plugin")
	})
}

func testFolder(t *testing.T, w *workshop, host, so string) {
	second := w.build(t, w.module(t, "replaced", true, ""), nil)
	dir := t.TempDir()
	for _, path := range []string{so, second} {
		if err := os.Link(path, filepath.Join(dir, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{plugin.FolderVariable: dir}
	works(t, host, "plug", env, "Loading cloud providers from "+dir, "Found cloud provider file "+dir+"/plug.so")
	works(t, host, "replaced", env, "the external provider replaces the built-in one")
	both := verified(t, so)
	both[plugin.FolderVariable] = dir
	out, err := loadWith(t, host, "plug", both)
	if err == nil || !strings.Contains(out, "two plugins are the provider plug") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func testTrimpath(t *testing.T, w *workshop, host, module, so string) {
	trimmed := w.build(t, module, nil, "-trimpath")
	fails(t, host, trimmed, "the plugin was built with -trimpath and this program without")
	trimmedHost := w.host(t, "trimmed", nil, "-trimpath")
	fails(t, trimmedHost, so, "this program was built with -trimpath and the plugin without", "go.work")
	fails(t, trimmedHost, trimmed, "with -trimpath a main module has no version in its path", "go.work")
	work := filepath.Join(w.dir, "go.work")
	if err := os.WriteFile(work, fmt.Appendf(nil, "go 1.26.0\n\nuse (\n\t%s\n\t%s\n)\n", w.root, module), 0o644); err != nil {
		t.Fatal(err)
	}
	alike := w.build(t, module, []string{"GOWORK=" + work, "GOFLAGS=-buildvcs=false"}, "-trimpath")
	works(t, trimmedHost, "plug", verified(t, alike))
}

func testVersion(t *testing.T, w *workshop, host, so string) {
	sys := regexp.MustCompile(`google.golang.org/protobuf\tv[0-9.]+`).FindString(read(t, so))
	older := sys[:len(sys)-1] + "0"
	fails(t, host, patched(t, so, sys, older), "this program has "+strings.ReplaceAll(sys, "\t", " "), "go get "+strings.ReplaceAll(sys, "\t", "@"))

	// A module from a folder has no version to compare: the runtime finds it.
	changed := filepath.Join(w.dir, "changed")
	original, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "go.yaml.in/yaml/v3").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(changed, os.DirFS(strings.TrimSpace(string(original)))); err != nil {
		t.Fatal(err)
	}
	module := w.module(t, "moved", false, "replace go.yaml.in/yaml/v3 => "+changed+"\n")
	fails(t, host, w.build(t, module, nil), "different version of package go.yaml.in/yaml/v3",
		"package go.yaml.in/yaml/v3 is of module go.yaml.in/yaml/v3", "the plugin "+changed, "the process plugin from the same source")
}

// patched returns a copy with one text for another of the same length.
func patched(t *testing.T, so, old, text string) string {
	t.Helper()
	data := []byte(read(t, so))
	if len(old) != len(text) || !bytes.Contains(data, []byte(old)) {
		t.Fatalf("cannot patch %q to %q", old, text)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(so))
	if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte(old), []byte(text)), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
