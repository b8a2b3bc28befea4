// SPDX-License-Identifier: Apache-2.0

package gobinary_test

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider/plugin/gobinary"
)

// side returns a binary; the settings are key=value.
func side(goVersion, sources string, deps []*debug.Module, settings ...string) gobinary.Side {
	info := &debug.BuildInfo{GoVersion: goVersion, Deps: deps}
	for _, text := range settings {
		key, value, _ := strings.Cut(text, "=")
		info.Settings = append(info.Settings, debug.BuildSetting{Key: key, Value: value})
	}
	return gobinary.Side{BuildInfo: info, Sources: sources}
}

func deps(versions ...string) []*debug.Module {
	var all []*debug.Module
	for _, text := range versions {
		path, version, _ := strings.Cut(text, "@")
		all = append(all, &debug.Module{Path: path, Version: version})
	}
	return all
}

const (
	src     = "/src/provider/registry.go"
	trimmed = "github.com/outrigger/outrigger/provider/registry.go"
)

func host(more ...string) gobinary.Side {
	return side("go1.26.8", src, deps("a.org/a@v1.0.0", "b.org/b@v1.0.0", "c.org/c@v1.0.0"),
		append([]string{"GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "CGO_ENABLED=1", "-buildmode=exe"}, more...)...)
}

func plugin(goVersion string, modules []*debug.Module, more ...string) gobinary.Side {
	return side(goVersion, src, modules, append([]string{"GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "CGO_ENABLED=1", "-buildmode=plugin"}, more...)...)
}

func TestCompare(t *testing.T) {
	like := deps("a.org/a@v1.0.0")
	atTrimmed := func(s gobinary.Side, path string) gobinary.Side { s.Sources = path; return s }
	replaced := []*debug.Module{{Path: "a.org/a", Version: "v1.0.0", Replace: &debug.Module{Path: "fork.org/a", Version: "v1.0.1"}}}
	for name, tc := range map[string]struct {
		host, plugin gobinary.Side
		want         []string // the sentences in their order; none means alike
	}{
		"alike":     {host(), plugin("go1.26.8", like), nil},
		"false":     {host("-race=false"), plugin("go1.26.8", like), nil},
		"toolchain": {host(), plugin("go1.26.7", like), []string{"this program was built with go1.26.8 and the plugin with go1.26.7"}},
		"race":      {host("-race=true"), plugin("go1.26.8", like), []string{"this program was built with -race"}},
		"trimpath":  {host(), plugin("go1.26.8", like, "-trimpath=true"), []string{"the plugin was built with -trimpath"}},
		"tags":      {host("-tags=x"), plugin("go1.26.8", like, "-tags=y"), []string{"this program was built with -tags=x and the plugin with -tags=y"}},
		"tags more": {host("-tags=x"), plugin("go1.26.8", like), []string{"this program was built with -tags=x and the plugin without"}},
		"architecture": {host(), side("go1.26.8", src, like, "GOOS=linux", "GOARCH=arm64", "GOARM64=v8.0", "CGO_ENABLED=1", "-buildmode=plugin", "GOAMD64=v1"),
			[]string{"GOARCH=amd64 and the plugin for arm64", "GOARM64"}},
		"static":         {side("go1.26.8", src, nil, "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "CGO_ENABLED=0"), plugin("go1.26.7", like), []string{"static (CGO_ENABLED=0)", "go1.26.7"}},
		"program":        {host(), side("go1.26.7", src, like, "-buildmode=exe"), []string{"-buildmode=exe"}},
		"first module":   {host(), plugin("go1.26.8", deps("c.org/c@v2.0.0", "b.org/b@v1.1.0", "z.org/z@v9.0.0")), []string{"b.org/b v1.0.0 and the plugin v1.1.0"}},
		"replaced":       {host(), plugin("go1.26.8", replaced), []string{"a.org/a v1.0.0 and the plugin fork.org/a v1.0.1"}},
		"development":    {host(), plugin("go1.26.8", deps("a.org/a@(devel)")), nil},
		"other sources":  {host(), atTrimmed(plugin("go1.26.8", like), "/other/provider/registry.go"), []string{"the sources /src and the plugin from /other"}},
		"trimmed main":   {atTrimmed(host("-trimpath=true"), trimmed), atTrimmed(plugin("go1.26.8", like, "-trimpath=true"), "github.com/outrigger/outrigger@v1.2.3/provider/registry.go"), []string{"go.work"}},
		"trim and tags":  {host("-tags=x"), plugin("go1.26.8", like, "-trimpath=true"), []string{"-trimpath", "-tags=x"}},
		"tags are later": {host("-tags=x"), plugin("go1.26.8", deps("a.org/a@v2.0.0")), []string{"a.org/a", "-tags=x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := gobinary.Compare(tc.host, tc.plugin)
			if len(got) != len(tc.want) {
				t.Fatalf("%d differences, want %d: %v", len(got), len(tc.want), got)
			}
			for i, want := range tc.want {
				if !strings.Contains(got[i].Text, want) {
					t.Errorf("difference %d does not say %q: %s", i, want, got[i].Text)
				}
			}
		})
	}
}

// TestTagsAloneDoNotRefuse: they matter only where they change a shared
// package, which the runtime knows.
func TestTagsAloneDoNotRefuse(t *testing.T) {
	if err := gobinary.Refuse(host("-tags=x"), plugin("go1.26.8", nil)); err != nil {
		t.Error(err)
	}
	err := gobinary.Refuse(host("-tags=x"), plugin("go1.26.7", nil))
	if err == nil || !strings.Contains(err.Error(), "go1.26.7") || !strings.Contains(err.Error(), "-tags=x") {
		t.Errorf("not all differences: %v", err)
	}
}

func TestAdvice(t *testing.T) {
	for message, want := range map[string]string{
		"plugin was built with a different version of package b.org/b/inner":  "is of module b.org/b: this program has v1.0.0, the plugin v1.1.0",
		"plugin was built with a different version of package internal/cpu":   "is of the Go distribution",
		"plugin was built with a different version of package a.org/a":        "which both have as v1.0.0",
		"plugin was built with a different version of package other.org/main": "is of a main module",
		"something else": "process plugin",
	} {
		got := gobinary.Advice(host(), plugin("go1.26.8", deps("a.org/a@v1.0.0", "b.org/b@v1.1.0")), message)
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", message, got)
		}
	}
}

// TestOwnBinary reads this program as both sides.
func TestOwnBinary(t *testing.T) {
	self, err := gobinary.Host()
	if err != nil {
		t.Fatal(err)
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := gobinary.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if self.GoVersion != runtime.Version() || file.GoVersion != self.GoVersion {
		t.Errorf("Go versions %s and %s", self.GoVersion, file.GoVersion)
	}
	if self.Sources == "" || file.Sources != self.Sources {
		t.Errorf("sources %q in memory and %q in the file", self.Sources, file.Sources)
	}
}

func TestNoGoBinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.so")
	if err := os.WriteFile(path, []byte("\x7fELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gobinary.Read(path); err == nil || !strings.Contains(err.Error(), "it is not a Go plugin") {
		t.Error(err)
	}
}
