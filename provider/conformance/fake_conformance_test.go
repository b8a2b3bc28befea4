// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
)

// TestFake runs the suite on the fake in every manner in which a correct
// cloud may behave.
func TestFake(t *testing.T) {
	for name, options := range map[string]func(t *testing.T) fake.Options{
		"plain":    func(*testing.T) fake.Options { return fake.Options{} },
		"folder":   func(t *testing.T) fake.Options { return fake.Options{Dir: t.TempDir()} },
		"slow":     func(*testing.T) fake.Options { return fake.Options{Latency: 3 * time.Millisecond} },
		"two nics": func(*testing.T) fake.Options { return fake.Options{DedicatedNIC: true} },
		"eventual": func(*testing.T) fake.Options {
			return fake.Options{Eventual: fake.Eventual{Lists: 3, Gets: 2, Lingers: 3}}
		},
		"slow creation": func(*testing.T) fake.Options {
			return fake.Options{Faults: []fake.Fault{fake.Slow(fake.OpCreate, 30*time.Millisecond).Repeated(-1)}}
		},
		"guests": func(t *testing.T) fake.Options { return bootOptions(t) },
		"guests in a folder": func(t *testing.T) fake.Options {
			options := bootOptions(t)
			options.Dir = t.TempDir()
			return options
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, func(t *testing.T) conformance.Subject { return subject(t, options(t)) })
		})
	}
}

// TestFakeWithoutCapabilities proves that a provider with only the required methods
// passes, cleans up and is told what was not checked.
func TestFakeWithoutCapabilities(t *testing.T) {
	open := func(conformance.T) conformance.Subject {
		cloud := newCloud(t, fake.Options{})
		return conformance.Subject{Provider: struct{ provider.Provider }{cloud}, Leaks: leaks(cloud)}
	}
	skipped := map[string]string{}
	for _, result := range conformance.Execute(t.Context(), conformance.Checks(), open) {
		switch result.Status {
		case conformance.Failed:
			t.Errorf("%s: %v", result.Name, result.Messages)
		case conformance.Skipped:
			skipped[result.Name] = result.Messages[0]
		}
	}
	for name, want := range map[string]string{
		"list-owner":   "not checked: the provider does not implement provider.Lister",
		"get":          "not checked: the provider does not implement provider.Getter",
		"console":      "not checked: the provider does not implement provider.ConsoleReader",
		"power":        "not checked: the provider does not implement provider.PowerController",
		"types":        "not checked: the provider does not implement provider.InstanceTypeLister",
		"node-address": "not checked: the provider does not implement provider.NodeAddresser",
		"balancer":     "not checked: the provider does not implement provider.LoadBalancerController",
		"disk":         "not checked: the provider does not implement provider.DiskController",
		"snapshot":     "not checked: the provider does not implement provider.DiskController",
		"key-reopened": "not checked: Subject.Reopen is not set",

		"delete-no-access": "not checked: Subject.NoAccess is not set",
	} {
		if skipped[name] != want {
			t.Errorf("%s: %q, want %q", name, skipped[name], want)
		}
	}
}

// TestCleanUpOfARest: a creation that was cut short may leave what is listed as
// being deleted and that only another deletion removes, as a port without its
// server.
func TestCleanUpOfARest(t *testing.T) {
	rest := all(around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if !cutShort(ctx) || ctx.Err() != nil {
			return create(ctx, q)
		}
		_, err := create(context.WithoutCancel(ctx), q)
		return nil, errors.Join(err, provider.ErrUnavailable)
	}), aroundList(func(_ *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
		found, err := list(ctx, match)
		for i := range found {
			found[i].State = provider.StateDeleting
		}
		return found, err
	}))
	m := mutant{breaks: rest}
	for _, check := range only("cancel-midway") {
		if m.test(t, check) {
			t.Errorf("%s fails", check.Name)
		}
	}
}

func newCloud(t *testing.T, options fake.Options) *fake.Cloud {
	t.Helper()
	cloud, err := fake.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return cloud
}

// subject is the fake with limits for tests: nothing here takes long.
func subject(t *testing.T, options fake.Options) conformance.Subject {
	options.Disks.PerInstance, options.Disks.SnapshotGets = maxDisks, 2
	cloud := newCloud(t, options)
	return withDisks(conformance.Subject{
		Provider:     cloud,
		Tags:         map[string]string{"purpose": "test"},
		Reopen:       func() provider.Provider { return cloud.Reopen() },
		NoAccess:     map[string]func() provider.Provider{"revoked credentials": func() provider.Provider { return cloud.Revoked() }},
		Leaks:        leaks(cloud),
		ReadUserData: func(_ context.Context, id string) (string, error) { return cloud.UserData(id) },
	}, cloud)
}

func leaks(cloud *fake.Cloud) func() ([]string, error) {
	return func() ([]string, error) {
		var names []string
		lines, err := cloud.Leaks()
		for _, line := range lines {
			names = append(names, fmt.Sprintf("%s %s", line.Kind, line.ID))
		}
		return names, err
	}
}

// bootOptions boot guests that take a while and must all have ended.
func bootOptions(t *testing.T) fake.Options {
	var mu sync.Mutex
	running := map[string]bool{}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if len(running) > 0 {
			t.Errorf("guests are still running: %v", running)
		}
	})
	return fake.Options{
		Boot: func(ctx context.Context, request fake.BootRequest) ([]netip.Addr, error) {
			mu.Lock()
			running[request.Instance.ID] = true
			mu.Unlock()
			select {
			case <-time.After(5 * time.Millisecond):
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Halt: func(_ context.Context, instance provider.Instance) error {
			mu.Lock()
			defer mu.Unlock()
			delete(running, instance.ID)
			return nil
		},
	}
}
