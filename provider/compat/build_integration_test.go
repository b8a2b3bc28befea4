// SPDX-License-Identifier: Apache-2.0

//go:build integration

package compat_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/test/tier"
)

const root = "../.."

// workspace writes a module with a provider in upstream's shape, as docs/provider-compat.md
// says.
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	gomod := strings.Replace(read(t, root+"/go.mod"), "module github.com/outrigger/outrigger", "module example.com/mycloud", 1) + `
require github.com/outrigger/outrigger v0.0.0
require github.com/confidential-containers/cloud-api-adaptor/src/cloud-providers v0.0.0
replace github.com/outrigger/outrigger => ` + here + `
replace github.com/confidential-containers/cloud-api-adaptor/src/cloud-providers => ` + here + `/examples/upstream-module
`
	for name, text := range map[string]string{
		"go.mod": gomod, "go.sum": read(t, root+"/go.sum"),
		"main.go": read(t, "testdata/main.go.txt"), "mycloud/mycloud.go": read(t, "testdata/mycloud.go.txt"),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func build(t *testing.T, dir, name string, env []string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", append(append([]string{"build", "-o", out}, args...), ".")...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// TestUpstreamsSourcesAsAProcess: such sources compile unchanged, and the program is a
// plugin whose variables the host knows.
func TestUpstreamsSourcesAsAProcess(t *testing.T) {
	program := build(t, workspace(t), "mycloud", nil, "-mod=mod", "-ldflags=-s -w")
	env := map[string]string{
		plugin.EnableVariable: "true", plugin.PathVariable: program, plugin.HashVariable: fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, program)))),
		"MYCLOUD_ZONE": "z1", "MYCLOUD_KEY": "hush", "DISABLECVM": "true", "TAGS": "team=blue",
	}
	loaded, err := plugin.Load(t.Context(), plugin.Options{Name: "mycloud", Getenv: func(name string) string { return env[name] }})
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	if loaded.Carrier != plugin.Process {
		t.Errorf("it is a %s", loaded.Carrier)
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	loaded.Cloud.ParseCmd(flags)
	if err := flags.Parse([]string{"-disk", "20"}); err != nil {
		t.Fatal(err)
	}
	loaded.Cloud.LoadEnv()
	p, err := loaded.Cloud.NewProvider()
	if err != nil {
		t.Fatal(err)
	}
	made, err := p.CreateInstance(t.Context(), "web", "0123456789", cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{VCPUs: 2, Memory: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if want := "big in z1, 20 GB, cvm off true, tags blue, key ********** of 4"; made.ID != want || made.Name != "podvm-web-01234567" {
		t.Errorf("made %q as %q, want %q", made.ID, made.Name, want)
	}
}

// TestUpstreamsSourcesAsAGoPlugin compiles everything twice more, with cgo.
func TestUpstreamsSourcesAsAGoPlugin(t *testing.T) {
	tier.OnlyAll(t)
	cgo := []string{"CGO_ENABLED=1", "GOFLAGS=-buildvcs=false"} // without -trimpath, as the page says
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	adaptor := filepath.Join(t.TempDir(), "cloud-api-adaptor")
	cmd := exec.Command("go", "build", "-o", adaptor, "./cmd/cloud-api-adaptor")
	cmd.Dir, cmd.Env = here, append(os.Environ(), cgo...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	so := build(t, workspace(t), "mycloud.so", cgo, "-mod=mod", "-buildmode=plugin")
	run := exec.Command(adaptor, "help", "mycloud")
	run.Env = []string{plugin.EnableVariable + "=true", plugin.PathVariable + "=" + so, plugin.HashVariable + fmt.Sprintf("=%x", sha256.Sum256([]byte(read(t, so))))}
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "-mycloud-key") {
		t.Errorf("%v\n%s", err, out)
	}
}
