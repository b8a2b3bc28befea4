// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"errors"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// configure does with a manager what a daemon does.
func configure(t *testing.T, args ...string) (provider.Provider, error) {
	t.Helper()
	manager := fake.NewManager()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	manager.ParseCmd(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	manager.LoadEnv()
	return manager.NewProvider()
}

func TestManagerFlagWinsOverEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("FAKE_DIR", filepath.Join(dir, "env"))
	t.Setenv("FAKE_CAPACITY", "1")
	p, err := configure(t, "-fake-dir", filepath.Join(dir, "flag"), "-fake-faults", "create:throttled:skip=1,create:quota")
	if err != nil {
		t.Fatal(err)
	}
	cloud := p.(*fake.Cloud)
	for i, want := range []error{provider.ErrQuota, provider.ErrUnavailable, nil} {
		if _, err := create(t.Context(), cloud, "k"); provider.Class(err) != want {
			t.Errorf("call %d: %v, want class %v", i, err, want)
		}
	}
	if _, err := create(t.Context(), cloud, "l"); !errors.Is(err, provider.ErrCapacity) {
		t.Errorf("the capacity of the environment does not hold: %v", err)
	}
	checkLeaks(t, newCloud(t, fake.Options{Dir: filepath.Join(dir, "flag")}), whole...)
}

func TestManagerRefuses(t *testing.T) {
	for _, tc := range []struct{ flag, value, want string }{
		{"-fake-latency", "5", "FAKE_LATENCY"},
		{"-fake-latency", "-5s", "negative"},
		{"-fake-capacity", "many", "many"},
		{"-fake-lists", "x", "FAKE_LISTS"},
		{"-fake-faults", "create", "not op:fault"},
		{"-fake-faults", "boot:slow=1s", `unknown call "boot"`},
		{"-fake-faults", "list:quota", `call list has no fault "quota"`},
		{"-fake-faults", "list:slow", "duration"},
		{"-fake-faults", "list:throttled:often", "neither skip=n nor times=n"},
		{"-fake-faults", "list:throttled:skip=x", "skip=x"},
	} {
		p, err := configure(t, tc.flag, tc.value)
		if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: got %v, %v, want an error with %q", tc.flag, tc.value, p, err, tc.want)
		}
		if p != nil {
			t.Errorf("%s %s: a provider that is not nil with an error", tc.flag, tc.value)
		}
	}
}

func TestParseFaults(t *testing.T) {
	faults, err := fake.ParseFaults("create:partial, delete:partial:times=-1 list:lost-reply get:unknown power-on:slow=2s types:unauthenticated create:no-capacity")
	if err != nil || len(faults) != 7 {
		t.Fatalf("%d faults, %v", len(faults), err)
	}
	if faults[1].Times != -1 || faults[1].Effect != fake.EffectPartial || faults[2].Effect != fake.EffectFull {
		t.Errorf("faults %+v", faults)
	}
}

func TestManagerRegistersNothing(t *testing.T) {
	if names := provider.List(); len(names) > 0 {
		t.Errorf("providers %v are registered", names)
	}
}
