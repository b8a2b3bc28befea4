// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
)

func unique() string             { return rand.Text() }
func soon() time.Time            { return time.Now().Add(200 * time.Millisecond) }
func timer() <-chan time.Time    { return time.After(30 * time.Millisecond) }
func plainError(err error) error { return errors.New(err.Error()) }

// mutant is a way to get the contract wrong.
type mutant struct {
	name   string
	breaks breakage
	// fails are the checks that must see it, each with what it must say.
	fails map[string]string
	// leaves says that deleting is broken, so the suite cannot clean up.
	leaves bool
	// boots makes creating take a while.
	boots bool
}

var mutants = []mutant{
	{name: "answers nothing", breaks: func(b *broken) {
		b.create = func(context.Context, string, cloudinit.CloudConfigGenerator, provider.InstanceTypeSpec) (*provider.Instance, error) {
			return nil, nil
		}
	}, fails: map[string]string{"create": "neither", "create-parallel": "answered <nil>", "cancel-midway": "neither"}},
	{name: "panics", breaks: func(b *broken) {
		b.create = func(context.Context, string, cloudinit.CloudConfigGenerator, provider.InstanceTypeSpec) (*provider.Instance, error) {
			panic("no such map")
		}
	}, fails: map[string]string{"create": "panic: no such map", "cancel-before": "panic: no such map"}},
	{name: "no id", breaks: changedInstance(func(i *provider.Instance) { i.ID = "" }), fails: map[string]string{"create": "without an id"}},
	{name: "no name", breaks: changedInstance(func(i *provider.Instance) { i.Name = "" }), fails: map[string]string{"create": "has no name"}},
	{name: "no address", breaks: changedInstance(func(i *provider.Instance) { i.IPs = nil }), fails: map[string]string{"create": "has no address"}},
	{name: "zero address", breaks: changedInstance(func(i *provider.Instance) { i.IPs[0] = netip.Addr{} }), fails: map[string]string{"create": "nobody can reach"}},
	{name: "address twice", breaks: changedInstance(func(i *provider.Instance) { i.IPs = append(i.IPs, i.IPs[0]) }), fails: map[string]string{"create": "twice"}},
	{name: "one address for all", breaks: changedInstance(func(i *provider.Instance) { i.IPs[0] = netip.MustParseAddr("192.0.2.1") }),
		fails: map[string]string{"create-parallel": "have the address 192.0.2.1", "key-different": "have the address"}},
	{name: "address changes", breaks: func(b *broken) {
		next := netip.MustParseAddr("192.0.2.1")
		changedInstance(func(i *provider.Instance) { i.IPs[0], next = next, next.Next() })(b)
	}, fails: map[string]string{"key-repeated": "addresses", "get": "addresses"}},

	{name: "user-data twice", breaks: changedRequest(func(_ *string, config *cloudinit.CloudConfigGenerator, _ *provider.InstanceTypeSpec) {
		(*config).Generate()
	}), fails: map[string]string{"create-user-data-once": "2 times"}},
	{name: "no user-data", breaks: changedRequest(func(_ *string, config *cloudinit.CloudConfigGenerator, _ *provider.InstanceTypeSpec) {
		*config = cloudinit.Raw("")
	}), fails: map[string]string{"create-user-data-once": "0 times", "create-user-data-error": "though there is no user-data"}},
	{name: "cause lost", breaks: changedError(plainError), fails: map[string]string{
		"create-user-data-error": "does not wrap", "create-unknown-type": "has class", "create-unknown-image": "has class"}},
	{name: "half an instance stays", breaks: func(b *broken) {
		create := b.create
		b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
			instance, err := create(ctx, key, config, spec)
			if err != nil {
				create(ctx, key+unique(), cloudinit.Raw(""), provider.InstanceTypeSpec{})
			}
			return instance, err
		}
	}, fails: map[string]string{"create-user-data-error": "left behind", "create-unknown-type": "left behind"}, leaves: true},
	{name: "any type", breaks: changedRequest(func(_ *string, _ *cloudinit.CloudConfigGenerator, spec *provider.InstanceTypeSpec) {
		spec.InstanceType = ""
	}), fails: map[string]string{"create-unknown-type": "answered"}},
	{name: "any image", breaks: changedRequest(func(_ *string, _ *cloudinit.CloudConfigGenerator, spec *provider.InstanceTypeSpec) {
		spec.Image = ""
	}), fails: map[string]string{"create-unknown-image": "answered"}},

	{name: "key ignored", breaks: changedRequest(func(key *string, _ *cloudinit.CloudConfigGenerator, _ *provider.InstanceTypeSpec) {
		*key += unique()
	}), fails: map[string]string{"key-repeated": "two instances", "key-concurrent": "two instances", "key-reopened": "two instances",
		"key-lost-reply": "0 instances have the key", "list-content": "key", "teardown": "two instances"}},
	{name: "key checked, then used", breaks: lookThenMake, fails: map[string]string{"key-concurrent": "two instances"}, boots: true},
	{name: "key known to one process", breaks: func(b *broken) {
		process := unique()
		changedRequest(func(key *string, _ *cloudinit.CloudConfigGenerator, _ *provider.InstanceTypeSpec) { *key += process })(b)
	}, fails: map[string]string{"key-reopened": "two instances", "key-concurrent-processes": "two instances", "teardown": "two instances"}},
	{name: "double after a lost reply", breaks: doubleOnTimeout, fails: map[string]string{"key-lost-reply": "2 instances have the key"}},
	{name: "one instance for all", breaks: changedRequest(func(key *string, _ *cloudinit.CloudConfigGenerator, _ *provider.InstanceTypeSpec) {
		*key = "key"
	}), fails: map[string]string{"key-different": "two instances have the id", "create-parallel": "two instances have the id"}},
	{name: "context ignored", breaks: func(b *broken) {
		create, list := b.create, b.list
		b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
			time.Sleep(time.Second)
			return create(context.WithoutCancel(ctx), key, config, spec)
		}
		b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
			return list(context.WithoutCancel(ctx), match)
		}
	}, fails: map[string]string{"cancel-before": "no return within", "cancel-midway": "no return within"}, leaves: true},
	{name: "orphan after a time-out", breaks: orphanOnTimeout, fails: map[string]string{"cancel-midway": "left behind"}, leaves: true},

	{name: "deletes nothing", breaks: func(b *broken) { b.delete = func(context.Context, string) error { return nil } },
		fails: map[string]string{"delete": "still shows", "list-deleted": "still shows", "get-deleted": "still answers",
			"delete-empty-id": "no error", "delete-reopened": "still shows", "create": "still shows"}, leaves: true},
	{name: "deletes the instance only", breaks: func(b *broken) {
		b.Inject(fake.PartialDelete().Repeated(-1))
		remove := b.delete
		b.delete = func(ctx context.Context, id string) error {
			if err := remove(ctx, id); !errors.Is(err, provider.ErrUnavailable) {
				return err
			}
			return nil
		}
	}, fails: map[string]string{"delete": "left behind after DeleteInstance", "create": "left behind"}, leaves: true},
	{name: "absent is an error", breaks: func(b *broken) {
		remove := b.delete
		b.delete = func(ctx context.Context, id string) error {
			if _, err := b.Cloud.GetInstance(ctx, id); err != nil && id != "" {
				return err
			}
			return remove(ctx, id)
		}
	}, fails: map[string]string{"delete-absent": "not found", "delete-repeated": "not found"}},
	{name: "deleting is an error", breaks: oneAtATime, fails: map[string]string{"delete-concurrent": "is being deleted"}},
	{name: "empty id of another class", breaks: func(b *broken) {
		remove := b.delete
		b.delete = func(ctx context.Context, id string) error {
			if id == "" {
				return provider.ErrNotFound
			}
			return remove(ctx, id)
		}
	}, fails: map[string]string{"delete-empty-id": "has class"}},
	{name: "delete hangs", breaks: func(b *broken) { b.delete = func(context.Context, string) error { select {} } },
		fails: map[string]string{"delete": "no return within", "cancel-before": "no return within"}, leaves: true},
	{name: "pending is an error", breaks: func(b *broken) {
		remove := b.delete
		b.delete = func(ctx context.Context, id string) error {
			if i, err := b.Cloud.GetInstance(ctx, id); err == nil && i.State == provider.StatePending {
				return fmt.Errorf("%w: instance %s is still being made", provider.ErrInvalidArgument, id)
			}
			return remove(ctx, id)
		}
	}, fails: map[string]string{"delete-while-creating": "still being made"}, boots: true},
	{name: "a process knows its own", breaks: ownOnly, fails: map[string]string{"delete-reopened": "still shows", "list-reopened": "does not show"}},

	{name: "first page only", breaks: func(b *broken) {
		list := b.list
		b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
			instances, err := list(ctx, match)
			return instances[:min(1, len(instances))], err
		}
	}, fails: map[string]string{"list-owner": "the list shows 1 instances"}},
	{name: "listed twice", breaks: func(b *broken) {
		list := b.list
		b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
			instances, err := list(ctx, match)
			return append(instances, instances...), err
		}
	}, fails: map[string]string{"list-owner": "twice", "key-lost-reply": "2 instances"}},
	{name: "list without keys", breaks: changedList(func(i *provider.Instance) { i.Key = "" }), fails: map[string]string{"list-content": `key ""`}},
	{name: "list without a tag", breaks: changedList(func(i *provider.Instance) { delete(i.Tags, provider.TagPod) }), fails: map[string]string{"list-content": provider.TagPod}},
	{name: "list with a wrong time", breaks: changedList(func(i *provider.Instance) { i.Created = time.Unix(0, 0) }), fails: map[string]string{"list-content": "1970"}},
	{name: "list with a foreign state", breaks: changedList(func(i *provider.Instance) { i.State = "ACTIVE" }), fails: map[string]string{"list-content": `"ACTIVE"`}},
	{name: "list of the cluster", breaks: func(b *broken) {
		list := b.list
		b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
			if len(match) == 0 {
				return list(ctx, match)
			}
			return list(ctx, map[string]string{provider.TagCluster: match[provider.TagCluster]})
		}
	}, fails: map[string]string{"list-others": "does not have the tags"}},
	{name: "list of everybody", breaks: func(b *broken) {
		list := b.list
		b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
			if len(match) == 0 {
				return nil, nil
			}
			return list(ctx, match)
		}
	}, fails: map[string]string{"list-empty-match": "answered 0 instances"}},
	{name: "cache never cleared", breaks: cached, fails: map[string]string{"list-deleted": "still shows", "get-deleted": "still answers"}},

	{name: "absent is nil", breaks: func(b *broken) {
		b.get = func(context.Context, string) (*provider.Instance, error) { return nil, nil }
		b.console = func(context.Context, string, int64) ([]byte, error) { return nil, nil }
	}, fails: map[string]string{"get": "neither", "get-absent": "answered", "get-deleted": "still answers", "console": "only 0 bytes", "console-absent": "answered"}},
	{name: "absent of no class", breaks: func(b *broken) {
		get, console := b.get, b.console
		b.get = func(ctx context.Context, id string) (*provider.Instance, error) {
			i, err := get(ctx, id)
			if err != nil {
				err = plainError(err)
			}
			return i, err
		}
		b.console = func(ctx context.Context, id string, tail int64) ([]byte, error) {
			text, err := console(ctx, id, tail)
			if err != nil {
				err = plainError(err)
			}
			return text, err
		}
	}, fails: map[string]string{"get-absent": "has class", "get-deleted": "not found", "console-absent": "has class"}},
	{name: "whole console", breaks: func(b *broken) {
		console := b.console
		b.console = func(ctx context.Context, id string, _ int64) ([]byte, error) { return console(ctx, id, 1<<20) }
	}, fails: map[string]string{"console": "asked for the last"}},
	{name: "head of the console", breaks: func(b *broken) {
		console := b.console
		b.console = func(ctx context.Context, id string, tail int64) ([]byte, error) {
			text, err := console(ctx, id, 1<<20)
			return text[:min(int64(len(text)), tail)], err
		}
	}, fails: map[string]string{"console": "but the console ends with"}},
	{name: "power twice is an error", breaks: func(b *broken) {
		powerOff := b.powerOff
		b.powerOff = func(ctx context.Context, id string) error {
			if i, err := b.Cloud.GetInstance(ctx, id); err == nil && i.State == provider.StateStopped {
				return errors.New("the instance is off")
			}
			return powerOff(ctx, id)
		}
	}, fails: map[string]string{"power": "the instance is off"}},
	{name: "power does nothing", breaks: func(b *broken) {
		b.powerOff = func(context.Context, string) error { return nil }
	}, fails: map[string]string{"power": `"running", not "stopped"`}},
	{name: "type twice", breaks: changedTypes(func(types []provider.InstanceType) []provider.InstanceType { return append(types, types[0]) }),
		fails: map[string]string{"types": "one that another has"}},
	{name: "no types", breaks: changedTypes(func([]provider.InstanceType) []provider.InstanceType { return nil }), fails: map[string]string{"types": "0 types"}},
	{name: "type without memory", breaks: changedTypes(func(types []provider.InstanceType) []provider.InstanceType {
		types[0].Memory = 0
		return types
	}), fails: map[string]string{"types": "no size"}},
	{name: "no node address", breaks: func(b *broken) { b.nodeAddress = netip.IPv4Unspecified() }, fails: map[string]string{"node-address": "0.0.0.0"}},
	{name: "node address fails", breaks: func(b *broken) { b.nodeAddressFailure = errors.New("no bridge") }, fails: map[string]string{"node-address": "no bridge"}},

	{name: "verify fails", breaks: func(b *broken) { b.verify = func() error { return errors.New("no network") } }, fails: map[string]string{"verify": "no network"}},
	{name: "verify leaves an instance", breaks: func(b *broken) {
		b.verify = func() error {
			_, err := b.Cloud.CreateInstance(context.Background(), "verify", unique(), cloudinit.Raw(""), provider.InstanceTypeSpec{})
			return err
		}
	}, fails: map[string]string{"verify": "left behind by ConfigVerifier"}, leaves: true},
	{name: "teardown deletes", breaks: func(b *broken) {
		b.teardown = func() error {
			lines, err := b.Leaks()
			for _, line := range lines {
				err = errors.Join(err, b.Cloud.DeleteInstance(context.Background(), line.Instance))
			}
			return err
		}
	}, fails: map[string]string{"teardown": "not found"}},
	{name: "teardown fails", breaks: func(b *broken) { b.teardown = func() error { return errors.New("still busy") } },
		fails: map[string]string{"teardown": "still busy", "create": "still busy"}},
}

func changedTypes(change func([]provider.InstanceType) []provider.InstanceType) breakage {
	return func(b *broken) {
		types := b.types
		b.types = func() ([]provider.InstanceType, error) {
			list, err := types()
			return change(list), err
		}
	}
}

// TestSuiteSeesMutants proves that the suite can fail, each check for the
// reason it is there for, and that it cleans up when it does.
func TestSuiteSeesMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			var checks sync.WaitGroup
			for check, says := range m.fails {
				checks.Go(func() { m.test(t, check, says) })
			}
			checks.Wait()
		})
	}
}

// test may run on any goroutine.
func (m mutant) test(t *testing.T, check, says string) {
	t.Helper()
	cloud, err := fake.New(m.options())
	if err != nil {
		t.Error(err)
		return
	}
	result := m.execute(t, cloud, check)
	if result.Status != conformance.Failed || !strings.Contains(strings.Join(result.Messages, "\n"), says) {
		t.Errorf("%s: %s, want a failure that says %q, got %q", check, result.Status, says, result.Messages)
	}
	if left, err := leaks(cloud)(); err != nil || len(left) > 0 && !m.leaves {
		t.Errorf("%s: the suite left %v, error %v", check, left, err)
	}
}

func (m mutant) options() fake.Options {
	options := fake.Options{}
	if m.boots {
		options.Boot = func(context.Context, fake.BootRequest) ([]netip.Addr, error) {
			<-time.After(200 * time.Millisecond)
			return nil, nil
		}
	}
	return options
}

func (m mutant) execute(t *testing.T, cloud *fake.Cloud, name string) conformance.Result {
	t.Helper()
	return conformance.Execute(t.Context(), only(name), func(conformance.T) conformance.Subject {
		return conformance.Subject{
			Provider: breakCloud(cloud, m.breaks),
			Reopen:   func() provider.Provider { return breakCloud(cloud.Reopen(), m.breaks) },
			Leaks:    leaks(cloud),
			Limits:   conformance.Limits{Call: time.Second, Soon: 300 * time.Millisecond, Settle: 300 * time.Millisecond},
		}
	})[0]
}

// only answers one check; a name that is none panics, since the table is wrong.
func only(name string) []conformance.Check {
	checks := conformance.Checks()
	i := slices.IndexFunc(checks, func(c conformance.Check) bool { return c.Name == name })
	return checks[i : i+1]
}

// TestEveryCheckCanFail proves that no check is there for show.
func TestEveryCheckCanFail(t *testing.T) {
	for _, check := range conformance.Checks() {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.fails[check.Name] != "" }) {
			t.Errorf("no mutant makes the check %q fail", check.Name)
		}
	}
}

// TestMutantFrame proves that the wrapper itself breaks nothing.
func TestMutantFrame(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		s := subject(t, fake.Options{})
		cloud := s.Provider.(*fake.Cloud)
		s.Provider = breakCloud(cloud, func(*broken) {})
		return s
	})
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
	cloud := newCloud(t, fake.Options{})
	hangOnFirst := func(b *broken) {
		remove := b.delete
		b.delete = func(ctx context.Context, id string) error {
			if id == "fake-000001" {
				select {}
			}
			return remove(ctx, id)
		}
	}
	result := mutant{breaks: hangOnFirst}.execute(t, cloud, "key-different")
	if result.Status != conformance.Failed {
		t.Errorf("%s: %q", result.Status, result.Messages)
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
}
