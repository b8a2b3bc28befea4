// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
)

func unique() string { return rand.Text() }

// failure makes an error of a class, or of none.
func failure(text string, class error) error {
	if class == nil {
		return fmt.Errorf("%s", text)
	}
	return fmt.Errorf("%s: %w", text, class)
}

// cutShort reports whether a call is one whose context the suite ends midway.
func cutShort(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && deadline.Before(time.Now().Add(200*time.Millisecond))
}

// mutant is a way to get the contract wrong.
type mutant struct {
	name   string
	breaks breakage
	// fails are the checks that must see it, each with what it must say; all
	// others must pass.
	fails map[string]string
	// also are further checks that see it, since the promise they prove rests
	// on the one that is broken.
	also []string
	// leaves says that deleting is broken, so the suite cannot clean up.
	leaves bool
	// boots makes creating take a while.
	boots bool
}

// mutants are all of them.
func mutants() []mutant {
	return slices.Concat(createMutants, userDataMutants, sizeMutants, keyMutants, cancelMutants, deleteMutants,
		listMutants, getMutants, powerMutants, balancerMutants, diskMutants, attachMutants, snapshotMutants, otherMutants, broadMutants)
}

// failing returns the names of the checks that must fail, sorted.
func (m mutant) failing() []string {
	names := append(slices.Collect(maps.Keys(m.fails)), m.also...)
	slices.Sort(names)
	return slices.Compact(names)
}

// TestSuiteSeesMutants proves that the suite can fail, each check for the
// reason it is there for and for no other, and that it cleans up when it does.
// Time is that of a bubble, so nothing depends on how fast the machine is.
func TestSuiteSeesMutants(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			var failed []string
			for _, check := range conformance.Checks() {
				if m.test(t, check) {
					failed = append(failed, check.Name)
				}
			}
			slices.Sort(failed)
			if diff := cmp.Diff(m.failing(), failed); diff != "" {
				t.Errorf("other checks fail than expected (-want +got):\n%s", diff)
			}
		})
	}
}

// test reports whether the check fails.
func (m mutant) test(t *testing.T, check conformance.Check) bool {
	t.Helper()
	var result conformance.Result
	var cloud *fake.Cloud
	synctest.Test(t, func(t *testing.T) {
		cloud = newCloud(t, m.options())
		result = m.execute(t, cloud, check)
	})
	said := strings.Join(result.Messages, "\n")
	if says := m.fails[check.Name]; !strings.Contains(said, says) {
		t.Errorf("%s: %s, want a failure that says %q, got %q", check.Name, result.Status, says, said)
	}
	if left, err := leaks(cloud)(); err != nil || len(left) > 0 && !m.leaves {
		t.Errorf("%s: the suite left %v, error %v", check.Name, left, err)
	}
	return result.Status == conformance.Failed
}

// settle is how long the suite waits for the cloud to settle, of a bubble's
// time.
const settle = 300 * time.Millisecond

// bootTime is how long creating takes where it takes time.
const bootTime = 200 * time.Millisecond

func (m mutant) options() fake.Options {
	options := fake.Options{Disks: fake.DiskOptions{PerInstance: maxDisks}}
	if m.boots {
		options.Boot = func(ctx context.Context, _ fake.BootRequest) ([]netip.Addr, error) {
			select {
			case <-time.After(bootTime):
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return options
}

func (m mutant) execute(t *testing.T, cloud *fake.Cloud, check conformance.Check) conformance.Result {
	t.Helper()
	w := newWorld()
	defer time.Sleep(time.Minute) // until what the suite gave up has ended
	defer close(w.ended)
	return conformance.Execute(t.Context(), []conformance.Check{check}, func(conformance.T) conformance.Subject {
		return withDisks(conformance.Subject{
			Provider: breakCloud(cloud, w, m.breaks),
			Reopen:   func() provider.Provider { return breakCloud(cloud.Reopen(), w, m.breaks) },
			NoAccess: map[string]func() provider.Provider{
				"revoked credentials": func() provider.Provider { return breakCloud(cloud.Revoked(), w, m.breaks) },
			},
			ReadUserData: func(_ context.Context, id string) (string, error) {
				if w.marked("user-data lost of "+id) != "" {
					return "", nil
				}
				return cloud.UserData(id)
			},
			Open: func(ctx context.Context) (provider.Provider, error) {
				return breakCloud(cloud.Reopen(), w, m.breaks).open(ctx)
			},
			Unchecked: true,
			Leaks:     leaks(cloud),
			Limits:    conformance.Limits{Call: 2 * time.Second, Soon: 300 * time.Millisecond, Settle: settle},
		}, cloud)
	})[0]
}

// only returns one check; a name that is none panics, since the table is wrong.
func only(name string) []conformance.Check {
	checks := conformance.Checks()
	i := slices.IndexFunc(checks, func(c conformance.Check) bool { return c.Name == name })
	return checks[i : i+1]
}

// TestEveryCheckHasItsMutant proves that no check is there for show, and that
// each sees something that no other does.
func TestEveryCheckHasItsMutant(t *testing.T) {
	alone := map[string]bool{}
	for _, m := range mutants() {
		for name := range m.fails {
			only(name)
		}
		if failing := m.failing(); len(failing) == 1 {
			alone[failing[0]] = true
		}
	}
	for _, check := range conformance.Checks() {
		if !alone[check.Name] {
			t.Errorf("no mutant turns the check %q red and no other", check.Name)
		}
	}
}

// TestMutantFrame proves that the wrapper itself breaks nothing.
func TestMutantFrame(t *testing.T) {
	for _, boots := range []bool{false, true} {
		m := mutant{breaks: all(remembersIDs, keysByTag), boots: boots}
		for _, check := range conformance.Checks() {
			if m.test(t, check) {
				t.Errorf("%s fails, boots %v", check.Name, boots)
			}
		}
	}
}

func TestExecuteAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, result := range conformance.Execute(ctx, conformance.Checks(), nil) {
		if result.Status != conformance.Failed || !strings.Contains(result.Messages[0], "not run") {
			t.Errorf("%s: %s %v", result.Name, result.Status, result.Messages)
		}
	}
}

// TestCleanUpGoesOn: one deletion that hangs does not keep the suite from
// deleting the rest.
func TestCleanUpGoesOn(t *testing.T) {
	hangOnFirst := aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if id == "fake-000001" {
			b.hang()
		}
		return remove(ctx, id)
	})
	synctest.Test(t, func(t *testing.T) {
		cloud := newCloud(t, fake.Options{})
		result := mutant{breaks: hangOnFirst}.execute(t, cloud, only("key-different")[0])
		if result.Status != conformance.Failed || len(result.Left) == 0 || result.Left[0] != "instance fake-000001" {
			t.Errorf("%s: %q, left %q", result.Status, result.Messages, result.Left)
		}
		lines, err := cloud.Leaks()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if line.Instance != "fake-000001" {
				t.Errorf("left: %s %s", line.Kind, line.ID)
			}
		}
	})
}
