// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/test/testplugin"
)

func TestMain(m *testing.M) {
	testplugin.Main()
	os.Exit(m.Run())
}

// load loads the provider with an environment.
func load(t *testing.T, name string, env map[string]string) (*plugin.Loaded, *testplugin.Log, error) {
	t.Helper()
	log, temp := &testplugin.Log{}, t.TempDir()
	loaded, err := plugin.Load(t.Context(), plugin.Options{
		Name: name, Log: slog.New(slog.NewTextHandler(log, nil)), Ready: 30 * time.Second, Wait: 30 * time.Second,
		Getenv: func(key string) string {
			if key == "TMPDIR" {
				return temp
			}
			return env[key]
		},
	})
	if err == nil {
		t.Cleanup(func() {
			if err := loaded.Close(); err != nil {
				t.Error(err)
			}
			if left, _ := os.ReadDir(temp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	} else if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return loaded, log, err
}

// verified is the environment for one file with its hash.
func verified(t testing.TB, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		plugin.EnableVariable: "true",
		plugin.PathVariable:   path,
		plugin.HashVariable:   fmt.Sprintf("%x", sha256.Sum256(data)),
	}
}

// open configures the provider as the adaptor does.
func open(t *testing.T, loaded *plugin.Loaded, args ...string) provider.Provider {
	t.Helper()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	loaded.Cloud.ParseCmd(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	loaded.Cloud.LoadEnv()
	p, err := loaded.Cloud.NewProvider()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func create(ctx context.Context, p provider.Provider, pod string) (*provider.Instance, error) {
	return p.CreateInstance(ctx, pod, "0123456789", cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{})
}

func mustCreate(t *testing.T, p provider.Provider, want string) {
	t.Helper()
	instance, err := create(t.Context(), p, "web")
	if err != nil {
		t.Fatal(err)
	}
	if instance.Name != want {
		t.Errorf("made %q, want %q", instance.Name, want)
	}
}

// mustFail checks class and text of an error.
func mustFail(t *testing.T, err, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("not %v: %v", class, err)
	}
	for _, text := range words {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("does not say %q: %v", text, err)
		}
	}
}

func TestProcessPlugin(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := testplugin.Install(t, "bad", testplugin.Good)
	env := verified(t, path)
	env["BAD_TOKEN"], env["BAD_SIZE"] = "hush", "4"
	loaded, log, err := load(t, "bad", env)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	if loaded.Carrier != plugin.Process || loaded.Path != path || loaded.Name != "bad" {
		t.Errorf("%+v", loaded)
	}
	log.Says(t, "Loading external plugin bad from "+path, "Successfully opened the external plugin "+path)
	p := open(t, loaded, "-bad-size", "5")
	mustCreate(t, p, "size 5 token hush")
	if _, err := create(t.Context(), p, "full"); !errors.Is(err, provider.ErrCapacity) || err.Error() != "no capacity: try later" {
		t.Errorf("the provider's own error became: %v", err)
	}
}

func TestProcessSeesNothingOfTheHost(t *testing.T) {
	t.Setenv("HOST_SECRET", "s3cret")
	env := verified(t, testplugin.Install(t, "bad", testplugin.Good))
	env["BAD_TOKEN"], env["AWS_SECRET_ACCESS_KEY"], env["PATH"] = "hush", "hush", "/bin"
	loaded, _, err := load(t, "bad", env)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := create(t.Context(), open(t, loaded), "environment")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, line := range strings.Split(instance.ID, " | ") {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"OUTRIGGER_PLUGIN_SOCKET", "PATH", "TMPDIR"}) {
		t.Errorf("environment: %v", names)
	}
	if instance.Name != loaded.Path {
		t.Errorf("arguments: %q", instance.Name)
	}
}

func TestCrashInACall(t *testing.T) {
	path := testplugin.Install(t, "bad", testplugin.Good)
	env := verified(t, path)
	env["BAD_TOKEN"] = "hush"
	loaded, _, err := load(t, "bad", env)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, loaded)
	// What is on disk now is nobody's business any more.
	if err := os.WriteFile(path+".new", []byte("#!/bin/false\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err = create(t.Context(), p, "crash")
		mustFail(t, err, provider.ErrUnavailable, "ended during the call", "exit status 7", "ouch", path)
		mustCreate(t, p, "size 1 token hush") // by the next process, configured again
	}
	_, err = create(t.Context(), p, "panic")
	mustFail(t, err, provider.ErrUnavailable, "exit status 2", "panic: out of luck")
}

func TestHangInACall(t *testing.T) {
	loaded, _, err := load(t, "bad", verified(t, testplugin.Install(t, "bad", testplugin.Good)))
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, loaded)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = create(ctx, p, "hang")
	mustFail(t, err, provider.ErrUnavailable)
	mustFail(t, err, context.DeadlineExceeded)
	mustCreate(t, p, "size 1 token ")
}

// TestFreezeInACall: a plugin that stops is noticed although the caller has
// all the time in the world.
func TestFreezeInACall(t *testing.T) {
	env := verified(t, testplugin.Install(t, "bad", testplugin.Good))
	loaded, err := plugin.Load(t.Context(), plugin.Options{
		Name: "bad", Getenv: func(key string) string { return env[key] }, Log: slog.New(slog.DiscardHandler),
		Alive: 100 * time.Millisecond, Ready: 2 * time.Second, Wait: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	p := open(t, loaded)
	_, err = create(t.Context(), p, "freeze")
	mustFail(t, err, provider.ErrUnavailable, "it did not answer within 2s and was killed")
	mustCreate(t, p, "size 1 token ")
}

func TestSeveralConfigurations(t *testing.T) {
	loaded, _, err := load(t, "bad", verified(t, testplugin.Install(t, "bad", testplugin.Good)))
	if err != nil {
		t.Fatal(err)
	}
	cloud := loaded.Cloud.(config.Configurable)
	second := cloud.Fresh()
	second.Set(config.Values{"bad-size": "9"})
	one := open(t, loaded)
	two, err := second.NewProvider()
	if err != nil {
		t.Fatal(err)
	}
	again := open(t, loaded)
	if err := again.Teardown(); err != nil { // the first still uses the same values
		t.Fatal(err)
	}
	create(t.Context(), one, "crash")
	mustCreate(t, one, "size 1 token ")
	mustCreate(t, two, "size 9 token ")
	if err := two.Teardown(); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t.Context(), two, "web"); err == nil {
		t.Error("a provider works after its Teardown")
	}
}

func TestBadSettings(t *testing.T) {
	env := verified(t, testplugin.Install(t, "bad", testplugin.Good))
	env["BAD_SIZE"] = "huge"
	loaded, _, err := load(t, "bad", env)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Cloud.ParseCmd(flag.NewFlagSet("test", flag.ContinueOnError))
	loaded.Cloud.LoadEnv()
	_, err = loaded.Cloud.NewProvider()
	mustFail(t, err, provider.ErrInvalidArgument, "BAD_SIZE", "huge")
}
