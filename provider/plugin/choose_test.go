// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/test/testplugin"
)

func TestBuiltIn(t *testing.T) {
	cloud := fake.NewManager()
	provider.AddCloudProvider("plain", cloud)
	loaded, log, err := load(t, "plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Carrier != plugin.BuiltIn || loaded.Cloud != provider.CloudProvider(cloud) {
		t.Errorf("%+v", loaded)
	}
	log.Says(t, "Cloud provider external plugin loading is disabled, skipping plugin loading")
}

// TestOpenedProvidersAreChecked: no provider needs to refuse what none can take.
func TestOpenedProvidersAreChecked(t *testing.T) {
	bare := config.New("bare", func(struct{}) (provider.Provider, error) { return struct{ provider.Provider }{}, nil })
	p, err := plugin.Open(t.Context(), bare)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteInstance(t.Context(), ""); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("an empty id: %v", err)
	}
	none := config.New("none", func(struct{}) (provider.Provider, error) { return nil, nil })
	if p, err := plugin.Open(t.Context(), none); p != nil || !errors.Is(err, provider.ErrUnknown) {
		t.Errorf("nothing opened: %v, %v", p, err)
	}
}

func TestUnsupported(t *testing.T) {
	provider.AddCloudProvider("here", fake.NewManager())
	_, _, err := load(t, "nowhere", nil)
	mustFail(t, err, provider.ErrNotFound, "Unsupported cloud provider: nowhere", "here", plugin.FolderVariable, plugin.PathVariable)
}

// TestOneFile: each mistake is one clear error, and nothing is run.
func TestOneFile(t *testing.T) {
	good := testplugin.Install(t, "bad", testplugin.Good)
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	folder := func(mode os.FileMode) string {
		dir := filepath.Join(t.TempDir(), "plugins")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "bad")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	for name, tc := range map[string]struct {
		change map[string]string
		class  error
		words  []string
	}{
		"switch":         {map[string]string{plugin.EnableVariable: "maybe"}, provider.ErrInvalidArgument, []string{plugin.EnableVariable, "maybe"}},
		"no path":        {map[string]string{plugin.PathVariable: ""}, provider.ErrInvalidArgument, []string{"Env CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH is not set"}},
		"no hash":        {map[string]string{plugin.HashVariable: ""}, provider.ErrInvalidArgument, []string{"Env CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH is not set", "sha256sum " + good}},
		"bad hash":       {map[string]string{plugin.HashVariable: "abc"}, provider.ErrInvalidArgument, []string{plugin.HashVariable, `"abc"`, "64 hexadecimal digits"}},
		"wrong hash":     {map[string]string{plugin.HashVariable: zeros}, provider.ErrInvalidArgument, []string{"The sha256sum of the external plugin: " + verified(t, good)[plugin.HashVariable], "doesn't match the one from configmap: " + zeros}},
		"absent":         {map[string]string{plugin.PathVariable: "/does/not/exist/bad"}, provider.ErrNotFound, []string{plugin.PathVariable, "/does/not/exist"}},
		"a folder":       {map[string]string{plugin.PathVariable: directory(t)}, provider.ErrInvalidArgument, []string{"is a folder; name the plugin's file"}},
		"other name":     {map[string]string{plugin.PathVariable: write("good", "#!/bin/sh\n", 0o755)}, provider.ErrInvalidArgument, []string{"Filename of the external plugin: good, is not match with CLOUD_PROVIDER: bad", "bad.so"}},
		"text":           {map[string]string{plugin.PathVariable: write("bad", "hello", 0o755)}, provider.ErrInvalidArgument, []string{"neither a Go plugin (*.so) nor a program"}},
		"no x":           {map[string]string{plugin.PathVariable: write("bad", "#!/bin/sh\n", 0o644)}, provider.ErrPermissionDenied, []string{"lacks execute permissions", "chmod +x"}},
		"file writable":  {map[string]string{plugin.PathVariable: write("bad", "#!/bin/sh\n", 0o777)}, provider.ErrPermissionDenied, []string{"writable for everybody", "chmod o-w"}},
		"folder no x":    {map[string]string{plugin.PathVariable: folder(0o600)}, provider.ErrPermissionDenied, []string{"The parent directory of the external plugin", "lacks execute permissions", "chmod u+x"}},
		"folder open":    {map[string]string{plugin.PathVariable: folder(0o777)}, provider.ErrPermissionDenied, []string{"writable for everybody", "chmod o-w"}},
		"no socket":      {map[string]string{plugin.PathVariable: "unix:///does/not/exist"}, provider.ErrUnavailable, []string{"there is no socket"}},
		"relative":       {map[string]string{plugin.PathVariable: "unix://x.sock"}, provider.ErrInvalidArgument, []string{"unix:///path"}},
		"file as socket": {map[string]string{plugin.PathVariable: "unix://" + good}, provider.ErrInvalidArgument, []string{"is not a unix socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			env := verified(t, good)
			maps.Copy(env, tc.change)
			_, _, err := load(t, "bad", env)
			mustFail(t, err, tc.class, tc.words...)
			if n := strings.Count(fmt.Sprint(err), "\n"); n > 0 {
				t.Errorf("%d lines: %v", n+1, err)
			}
		})
	}
}

func directory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bad")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestExternalReplacesBuiltIn(t *testing.T) {
	path := testplugin.Install(t, "WORSE", testplugin.OtherName) // names do not mind the case
	provider.AddCloudProvider("worse", fake.NewManager())
	loaded, log, err := load(t, "worse", verified(t, path))
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Carrier != plugin.Process {
		t.Errorf("carrier %s", loaded.Carrier)
	}
	log.Says(t, "level=WARN", "the external provider replaces the built-in one")
}

func TestFolder(t *testing.T) {
	path := testplugin.Install(t, "bad", testplugin.Good)
	dir := filepath.Dir(path)
	if err := os.WriteFile(filepath.Join(dir, "other"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "another.so"), []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
	loaded, log, err := load(t, "bad", map[string]string{plugin.FolderVariable: dir})
	if err != nil {
		t.Fatal(err)
	}
	// One that is broken and another's does not stop this one.
	log.Says(t, "level=WARN", "cannot be loaded and is passed over", "another.so")
	if loaded.Carrier != plugin.Process || loaded.Path != path {
		t.Errorf("%+v", loaded)
	}
	mustCreate(t, open(t, loaded), "size 1 token ")
	log.Says(t, "Loading cloud providers from "+dir, "Found cloud provider file "+path, "Ignoring", "other")
}

// TestProgramsOfOurs: a file may be called as `make build-all` calls it.
func TestProgramsOfOurs(t *testing.T) {
	path := testplugin.Install(t, "provider-bad", testplugin.Good)
	for what, env := range map[string]map[string]string{"file": verified(t, path), "folder": {plugin.FolderVariable: filepath.Dir(path)}} {
		loaded, _, err := load(t, "bad", env)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if loaded.Name != "bad" || loaded.Path != path {
			t.Errorf("%s: %+v", what, loaded)
		}
	}
}

func TestFolderErrors(t *testing.T) {
	dir := t.TempDir()
	_, _, err := load(t, "bad", map[string]string{plugin.FolderVariable: dir})
	mustFail(t, err, provider.ErrNotFound, "Unsupported cloud provider: bad")
	if err := os.WriteFile(filepath.Join(dir, "x.so"), []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err = load(t, "bad", map[string]string{plugin.FolderVariable: dir})
	mustFail(t, err, provider.ErrNotFound, plugin.FolderVariable, "x.so")
	if err := os.WriteFile(filepath.Join(dir, "bad.so"), []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err = load(t, "bad", map[string]string{plugin.FolderVariable: dir})
	mustFail(t, err, provider.Class(err), plugin.FolderVariable, "bad.so")
	if errors.Is(err, plugin.ErrUnsupported) {
		t.Errorf("the one asked for was passed over: %v", err)
	}
	_, _, err = load(t, "bad", map[string]string{plugin.FolderVariable: dir + "/none"})
	mustFail(t, err, provider.ErrNotFound, plugin.FolderVariable)
}

func TestTwoOfOneName(t *testing.T) {
	path := testplugin.Install(t, "bad", testplugin.Good)
	env := verified(t, path)
	env[plugin.FolderVariable] = filepath.Dir(path)
	_, _, err := load(t, "bad", env)
	mustFail(t, err, provider.ErrInvalidArgument, "two plugins are the provider bad", "remove one")
}

func TestEnvIsComplete(t *testing.T) {
	for i, want := range []string{plugin.FolderVariable, plugin.EnableVariable, plugin.PathVariable, plugin.HashVariable} {
		if got := plugin.Env()[i]; got.Name != want || got.Usage == "" {
			t.Errorf("%+v is not %s with its usage", got, want)
		}
	}
}
