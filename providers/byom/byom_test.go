// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/byom"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

func configFor(k *sim.Keys, n int) Config {
	c := config.Defaults[Config]()
	c.PoolIPs = []string{fmt.Sprintf("%s-%s", sim.Addr(1), sim.Addr(n))}
	c.PrivateKey, c.PublicKey, c.AllowlistDir = k.File("id"), k.File("id.pub"), k.File("allowed")
	c.Namespace = "pods"
	return c
}

// fixture is a pool and how to open a provider on it.
type fixture struct {
	*sim.Pool
	cfg Config
}

func start(t testing.TB, n int) *fixture {
	k := sim.NewKeys(t)
	pool := sim.Start(t, n, k)
	cfg := configFor(k, n)
	cfg.Kubeconfig = pool.Kubeconfig
	return &fixture{pool, cfg}
}

func (f *fixture) open(change ...func(*Config)) (*Provider, error) {
	cfg := f.cfg
	for _, do := range change {
		do(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	p.dial, p.pace, p.makerWait = f.Dial, poll.Pace{First: time.Millisecond, Max: 10 * time.Millisecond}, 20*time.Millisecond
	return p, nil
}

func (f *fixture) mustOpen(t testing.TB, change ...func(*Config)) *Provider {
	t.Helper()
	p, err := f.open(change...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (f *fixture) wantNothing(t *testing.T) {
	t.Helper()
	// A machine takes a while to reboot.
	end := time.Now().Add(10 * time.Second)
	left, _ := f.Leaks()
	for len(left) > 0 && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
		left, _ = f.Leaks()
	}
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if wrong := f.World.Violations(); len(wrong) > 0 {
		t.Errorf("books: %q", wrong)
	}
}

func create(ctx context.Context, p provider.Provider, key string) (*provider.Instance, error) {
	return p.CreateInstance(ctx, "pod", key, cloudinit.Raw("#cloud-config\n# "+key+"\n"), provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(key)})
}

func TestConformance(t *testing.T) {
	f := start(t, 24)
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		reopen := func() provider.Provider {
			p := f.mustOpen(t)
			p.makerWait = 3 * time.Second // a maker may be slow on a busy machine
			return p
		}
		p := reopen()
		return conformance.Subject{
			Provider: p, Reopen: reopen, Leaks: f.Leaks, Limits: cloudsim.Limits,
			NoAccess: map[string]func() provider.Provider{
				"a token that was revoked": func() provider.Provider {
					return f.mustOpen(t, func(c *Config) { c.Kubeconfig = f.KubeconfigOf(t, "revoked") })
				},
			},
			ReadUserData: func(ctx context.Context, id string) (string, error) {
				i, err := p.(*Provider).GetInstance(ctx, id)
				if err != nil {
					return "", err
				}
				return f.UserData(i.IPs[0])
			},
		}
	})
	f.wantNothing(t)
}

var faults = []cloudsim.Fault{
	cloudsim.LostReply("configmaps:update"), cloudsim.LostReply("configmaps:create"), cloudsim.Unreachable("configmaps:*"),
	cloudsim.Refused("configmaps:*", 503, "ServiceUnavailable"), cloudsim.Refused("configmaps:*", 429, "TooManyRequests"), cloudsim.Refused("configmaps:update", 409, "Conflict"),
	cloudsim.Slow("configmaps:update", 2*time.Millisecond), cloudsim.GoesOn("configmaps:update", 2*time.Millisecond), cloudsim.Unreachable("ssh:connect"), cloudsim.Slow("ssh:connect", 2*time.Millisecond),
	cloudsim.LostReply("sftp:Rename"), cloudsim.Unreachable("sftp:*"), cloudsim.LostReply("sftp:Put"),
}

func TestSchedules(t *testing.T) {
	k := sim.NewKeys(t)
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *mathrand.Rand) cloudsim.Stand {
		pool := sim.Start(t, 5, k)
		pool.AddForeign(t, 2, cloudsim.ForeignTags(cloudsim.ScheduleKeys()[0]))
		if random.IntN(2) == 0 {
			for n := range 5 {
				pool.Machine(n + 1).Mute()
			}
		}
		f := &fixture{pool, configFor(k, 5)}
		f.cfg.Kubeconfig = pool.Kubeconfig
		return cloudsim.Stand{World: pool.World, Faults: faults, Settle: time.Minute, Open: func() (provider.Provider, error) { return f.open() }}
	})
}

// TestTwoNodesNeverShareAMachine: two processes claim all machines at the same
// time.
func TestTwoNodesNeverShareAMachine(t *testing.T) {
	const n = 12
	f := start(t, n)
	nodes := []*Provider{f.mustOpen(t), f.mustOpen(t)}
	var group sync.WaitGroup
	var mu sync.Mutex
	owners := map[string]string{}
	for i := range n {
		group.Go(func() {
			key := fmt.Sprint("key-", i)
			made, err := create(t.Context(), nodes[i%2], key)
			if err != nil {
				t.Errorf("%s: %v", key, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			addr := made.IPs[0].String()
			if owners[addr] != "" {
				t.Errorf("%s is %s's and %s's", addr, owners[addr], key)
			}
			owners[addr] = key
		})
	}
	group.Wait()
	if len(owners) != n {
		t.Fatalf("%d machines given away", len(owners))
	}
	full := f.mustOpen(t, func(c *Config) { c.ResetWait = 10 * time.Millisecond })
	if _, err := create(t.Context(), full, "one-more"); !errors.Is(err, provider.ErrCapacity) || !strings.Contains(err.Error(), "VM_POOL_IPS") {
		t.Errorf("the pool is empty: %v", err)
	}
	list, err := nodes[0].ListInstances(t.Context(), map[string]string{provider.TagCluster: "schedules"})
	if err != nil || len(list) != n {
		t.Fatalf("%d listed, %v", len(list), err)
	}
	for _, i := range list {
		if err := nodes[1].DeleteInstance(t.Context(), i.ID); err != nil {
			t.Error(err)
		}
	}
	f.wantNothing(t)
}

// TestMachineComesBackOnlyAfterItsReboot also where it only looks as if.
func TestMachineComesBackOnlyAfterItsReboot(t *testing.T) {
	f := start(t, 1)
	p := f.mustOpen(t, func(c *Config) { c.ResetWait = 30 * time.Millisecond })
	first, err := create(t.Context(), p, "first")
	if err != nil {
		t.Fatal(err)
	}
	boots := f.Machine(1).Boots()
	f.Machine(1).SetDown(true)
	if err := p.DeleteInstance(t.Context(), first.ID); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("nobody told the machine to reboot: %v", err)
	}
	if list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "first"}); err != nil || len(list) != 1 {
		t.Errorf("listed %v, %v", list, err)
	}
	f.Machine(1).SetDown(false)
	if _, err := create(t.Context(), p, "second"); !errors.Is(err, provider.ErrCapacity) {
		t.Errorf("the machine still has the first pod: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	patient := f.mustOpen(t)
	second, err := create(t.Context(), patient, "second")
	if err != nil || f.Machine(1).Boots() != boots+1 {
		t.Fatalf("%v after %d boots, want %d", err, f.Machine(1).Boots(), boots+1)
	}
	if first.IPs[0] != second.IPs[0] {
		t.Errorf("the machine of a pool of one is at %s, then at %s", first.IPs[0], second.IPs[0])
	}
}

// TestMachineWithFilesOfOthers is not given away before it has rebooted.
func TestMachineWithFilesOfOthers(t *testing.T) {
	f := start(t, 2)
	f.Machine(1).Put("/cidata/user-data", "who put that here?")
	i, err := create(t.Context(), f.mustOpen(t), "key")
	if err != nil || i.IPs[0] != sim.Addr(2) {
		t.Errorf("%+v, %v: want the second machine", i, err)
	}
	end := time.Now().Add(10 * time.Second)
	for f.Machine(1).Boots() == 1 && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	if f.Machine(1).Boots() != 2 {
		t.Error("the first machine was not told to reboot")
	}
}

// TestDeadMachine: one that does not answer is put aside, and comes back.
func TestDeadMachine(t *testing.T) {
	f := start(t, 2)
	f.Machine(1).SetDown(true)
	p := f.mustOpen(t)
	if i, err := create(t.Context(), p, "key"); err != nil || i.IPs[0] != sim.Addr(2) {
		t.Errorf("%+v, %v: want the second machine", i, err)
	}
	f.Machine(1).SetDown(false)
	if i, err := create(t.Context(), p, "other"); err != nil || i.IPs[0] != sim.Addr(1) {
		t.Errorf("%+v, %v: want the first machine", i, err)
	}
}

func TestCalls(t *testing.T) {
	f := start(t, 3)
	p := f.mustOpen(t)
	if _, err := create(t.Context(), p, "warm"); err != nil {
		t.Fatal(err)
	}
	count := func(do func() error) (api, machine int) {
		f.World.ResetCalls()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		for action, n := range f.World.Calls() {
			if strings.HasPrefix(action, "configmaps:") {
				api += n
			} else {
				machine += n
			}
		}
		return api, machine
	}
	var i *provider.Instance
	api, machine := count(func() (err error) { i, err = create(t.Context(), p, "key"); return err })
	if api != 6 || machine != 4 {
		t.Errorf("%d calls of the API server and %d of the machine per create: the documentation says 6 and 4", api, machine)
	}
	api, machine = count(func() error { return p.DeleteInstance(t.Context(), i.ID) })
	if api != 6 || machine != 4 {
		t.Errorf("%d calls of the API server and %d of the machine per delete: the documentation says 6 and 4", api, machine)
	}
}
