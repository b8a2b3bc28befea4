// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/docker"
)

func simConfig(e *sim.Engine, change ...func(*Config)) Config {
	c := config.Defaults[Config]()
	c.Host, c.Image = e.Host, sim.Image
	for _, do := range change {
		do(&c)
	}
	return c
}

// open returns a provider that waits for little, as the engine takes little time.
func open(c Config) (*Provider, error) {
	p, err := New(c)
	if err != nil {
		return nil, err
	}
	p.wait = poll.Pace{First: time.Millisecond, Max: 5 * time.Millisecond}
	return p, nil
}

func mustOpen(t testing.TB, c Config) *Provider {
	t.Helper()
	p, err := open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Teardown() })
	return p
}

func create(ctx context.Context, p provider.Provider, key string) (*provider.Instance, error) {
	return p.CreateInstance(ctx, "pod", key, cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(key)})
}

func wantNothing(t *testing.T, e *sim.Engine) {
	t.Helper()
	if left, _ := e.Leaks(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if wrong := e.World.Violations(); len(wrong) > 0 {
		t.Errorf("books: %q", wrong)
	}
}

// TestConformance is against the simulated engine, with either API.
func TestConformance(t *testing.T) {
	for _, version := range sim.Versions {
		t.Run(version, func(t *testing.T) {
			e := sim.Start(t, version)
			conformance.Run(t, func(t *testing.T) conformance.Subject {
				reopen := func() provider.Provider {
					return mustOpen(t, simConfig(e, func(c *Config) { c.BalancerImage = sim.Image }))
				}
				return conformance.Subject{
					Provider: reopen(), Reopen: reopen, Leaks: e.Leaks, Limits: cloudsim.Limits,
					NoAccess: map[string]func() provider.Provider{
						"an engine that there is not": func() provider.Provider {
							return mustOpen(t, simConfig(e, func(c *Config) { c.Host, c.BalancerImage = "unix:///nowhere.sock", sim.Image }))
						},
					},
					ReadUserData: func(_ context.Context, id string) (string, error) { return e.ReadFile(id, "/media/cidata/user-data") },
					WriteDisk:    e.WriteDisk, ReadDisk: e.ReadDisk,
				}
			})
			wantNothing(t, e)
		})
	}
}

// faults are what happens to calls of an engine: it is restarted, its disk is
// full, its runtime fails, somebody else removes a container.
var faults = []cloudsim.Fault{
	cloudsim.LostReply("ContainerCreate"), cloudsim.LostReply("ContainerStart"), cloudsim.LostReply("PutContainerArchive"), cloudsim.LostReply("ContainerDelete"),
	cloudsim.Unreachable("*"), cloudsim.Unreachable("Container*"), cloudsim.Slow("*", 2*time.Millisecond),
	cloudsim.Slow("ContainerCreate", 10*time.Millisecond), cloudsim.GoesOn("ContainerCreate", 10*time.Millisecond), cloudsim.Slow("ContainerStart", 10*time.Millisecond), cloudsim.Slow("ContainerDelete", 10*time.Millisecond),
	cloudsim.Refused("*", 500, "internal"), cloudsim.Refused("Container*", 503, "unavailable"),
	cloudsim.Refused("ContainerCreate", 500, "internal"), cloudsim.Refused("PutContainerArchive", 500, "no space left on device"),
	cloudsim.Refused("ContainerStart", 500, "OCI runtime create failed"), cloudsim.Refused("ContainerDelete", 500, "driver failed to remove root filesystem"),
	cloudsim.Refused("ContainerCreate", 409, "Conflict. The container name is already in use"), cloudsim.Refused("ContainerDelete", 409, "removal is already in progress"),
}

// TestCancelledCreation: the container that an engine is making when the caller's time is up
// is in the answer, so that the caller can delete it.
func TestCancelledCreation(t *testing.T) {
	e, hold := sim.Start(t, sim.Versions[0]), cloudsim.NewHold()
	p := mustOpen(t, simConfig(e))
	e.World.Script(cloudsim.Held("ContainerCreate", hold))
	ctx, cancel := context.WithCancel(t.Context())
	type outcome struct {
		left *provider.Instance
		err  error
	}
	done := make(chan outcome)
	go func() {
		left, err := create(ctx, p, "key")
		done <- outcome{left, err}
	}()
	for e.World.Calls()["ContainerCreate"] == 0 {
		runtime.Gosched()
	}
	cancel()
	select {
	case o := <-done:
		t.Fatalf("ended before the engine: %v, %v", o.left, o.err)
	case <-time.After(50 * time.Millisecond): // most often enough to see one that does not wait
	}
	hold.Release()
	o := <-done
	if !errors.Is(o.err, provider.ErrUnavailable) || o.left == nil || o.left.ID == "" {
		t.Fatalf("answer %v, %v; want the container and ErrUnavailable", o.left, o.err)
	}
	if err := p.DeleteInstance(t.Context(), o.left.ID); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, e)
}

func TestSchedules(t *testing.T) {
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *rand.Rand) cloudsim.Stand {
		e := sim.Start(t, sim.Versions[random.IntN(len(sim.Versions))])
		tags := cloudsim.ForeignTags(cloudsim.ScheduleKeys()[0])
		labels := map[string]string{labelOurs: "1"}
		for name, value := range tags {
			labels[tagPrefix+name] = value
		}
		e.AddForeign("podvm-of-others", labels, tags)
		return cloudsim.Stand{
			World: e.World, Settle: 2 * time.Minute, Faults: faults, Untagged: []string{cloudsim.KindDisk}, // the engine makes an image's volumes
			Open: func() (provider.Provider, error) { return open(simConfig(e)) },
		}
	})
}

// TestNameOfOthers: a container with the name that ours would have is left alone.
func TestNameOfOthers(t *testing.T) {
	e := sim.Start(t, sim.Versions[0])
	p := mustOpen(t, simConfig(e))
	theirs := e.AddForeign(nameOf("key"), nil, nil)
	if _, err := create(t.Context(), p, "key"); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("create: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), theirs); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
	wantNothing(t, e)
}

// TestBadEngine: what is wrong has a class and names what it is, and nothing is left.
func TestBadEngine(t *testing.T) {
	script := func(f cloudsim.Fault) func(*sim.Engine) {
		return func(e *sim.Engine) { e.World.Script(f.Repeated(-1)) }
	}
	nothing := func(*sim.Engine) {}
	for name, row := range map[string]struct {
		change func(*Config)
		world  func(*sim.Engine)
		class  error
		want   string
	}{
		"image":         {func(c *Config) { c.Image = "no-such-image" }, nothing, provider.ErrNotFound, "no-such-image"},
		"network":       {func(c *Config) { c.Network = "no-such-network" }, nothing, provider.ErrNotFound, "no-such-network"},
		"CPUs":          {func(c *Config) { c.CPUs = 512 }, nothing, provider.ErrCapacity, "512 CPUs"},
		"memory":        {func(c *Config) { c.Memory = 1 << 20 }, nothing, provider.ErrCapacity, "1048576 MiB"},
		"API version":   {func(c *Config) { c.APIVersion = "1.99" }, nothing, provider.ErrInvalidArgument, "1.99"},
		"guest ends":    {func(c *Config) { c.Image = sim.EndingImage }, nothing, provider.ErrUnavailable, "code 3"},
		"not allowed":   {func(*Config) {}, (*sim.Engine).Deny, provider.ErrPermissionDenied, "not allowed"},
		"disk is full":  {func(*Config) {}, script(cloudsim.Fault{Action: "PutContainerArchive", Status: 500, Code: "full", Message: "no space left on device"}), provider.ErrCapacity, "no space left"},
		"start fails":   {func(*Config) {}, script(cloudsim.Fault{Action: "ContainerStart", Status: 500, Code: "oci", Message: "OCI runtime create failed"}), provider.ErrUnavailable, "OCI runtime"},
		"engine is off": {func(*Config) {}, script(cloudsim.Unreachable("*")), provider.ErrUnavailable, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			e := sim.Start(t, sim.Versions[0])
			row.world(e)
			p := mustOpen(t, simConfig(e, row.change))
			i, err := create(t.Context(), p, "key")
			if !errors.Is(err, row.class) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %v that names %s", err, row.class, row.want)
			}
			e.World.ClearFaults()
			if i != nil {
				if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
					t.Error(err)
				}
			}
			wantNothing(t, e)
		})
	}
}

// TestSharedAttempt: whoever fails to start a container that runs by now, since
// somebody else has started it, does not take it away from them.
func TestSharedAttempt(t *testing.T) {
	e := sim.Start(t, sim.Versions[0])
	p := mustOpen(t, simConfig(e))
	fails := cloudsim.Fault{Action: "ContainerStart", Status: 500, Code: "internal", Message: "as the script says", After: true}
	e.World.Script(fails)
	i, err := create(t.Context(), p, "key")
	if err == nil || i == nil {
		t.Fatalf("%+v, %v: want an error and the id", i, err)
	}
	again, err := create(t.Context(), p, "key")
	if err != nil || again.ID != i.ID {
		t.Fatalf("%+v, %v: want %s, which runs", again, err, i.ID)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, e)
}

// TestCalls is the page's count of calls.
func TestCalls(t *testing.T) {
	e := sim.Start(t, sim.Versions[0])
	p := mustOpen(t, simConfig(e))
	count := func(what string, want int) {
		t.Helper()
		sum := 0
		for action, n := range e.World.Calls() {
			if !strings.HasPrefix(action, "SystemPing") { // once in the life of a process
				sum += n
			}
		}
		if sum != want {
			t.Errorf("%s takes %d calls, want %d: %v", what, sum, want, e.World.Calls())
		}
		e.World.ResetCalls()
	}
	i, err := create(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	count("creation", 8)
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	count("deletion", 3)
}

// TestNodeAddress is what containers see of this node.
func TestNodeAddress(t *testing.T) {
	e := sim.Start(t, sim.Versions[0])
	p := mustOpen(t, simConfig(e))
	if addr, err := p.NodeAddress(t.Context()); err != nil || addr.String() != sim.Gateway {
		t.Errorf("%v, %v: want the bridge's, %s", addr, err, sim.Gateway)
	}
	absent := mustOpen(t, simConfig(e, func(c *Config) { c.Network = "absent" }))
	if _, err := absent.NodeAddress(t.Context()); !errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), "DOCKER_NETWORK_NAME") {
		t.Errorf("no such network: %v", err)
	}
	remote := mustOpen(t, simConfig(e, func(c *Config) { c.Host = "tcp://127.0.0.1:2375" }))
	if addr, err := remote.NodeAddress(t.Context()); err != nil || addr.String() != "127.0.0.1" {
		t.Errorf("%v, %v: want the address by which this node reaches the engine", addr, err)
	}
}
