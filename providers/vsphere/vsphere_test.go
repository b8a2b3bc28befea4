// SPDX-License-Identifier: Apache-2.0

//go:build !race

package vsphere

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
)

// simConfig is a configuration for a site; each change is made to it.
func simConfig(s *sim.Site, change ...func(*Config)) Config {
	c := config.Defaults[Config]()
	c.URL, c.CAFile, c.User, c.Password = s.URL, s.CAFile, sim.User, config.Secret(sim.Password)
	c.Folder, c.Template, c.Pools = s.Folder, sim.Template, []string{sim.Cluster}
	for _, do := range change {
		do(&c)
	}
	return c
}

// open returns a provider that waits for little, as vcsim takes little time.
func open(c Config) (*Provider, error) {
	p, err := New(c)
	if err != nil {
		return nil, err
	}
	p.pace, p.cloneWait = poll.Pace{First: time.Millisecond, Max: 20 * time.Millisecond}, 30*time.Second
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

func TestConformance(t *testing.T) {
	s := sim.Start(t)
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		reopen := func() provider.Provider {
			p := mustOpen(t, simConfig(s))
			p.cloneWait = 2 * time.Second // that somebody else's disk is not just being made
			return p
		}
		return conformance.Subject{
			Provider: reopen(), Reopen: reopen, Leaks: s.Leaks, Limits: cloudsim.Limits,
			NoAccess: map[string]func() provider.Provider{
				"a password that was changed": func() provider.Provider {
					return mustOpen(t, simConfig(s, func(c *Config) { c.Password = "changed" }))
				},
				"a datacenter that there is not": func() provider.Provider {
					return mustOpen(t, simConfig(s, func(c *Config) { c.Datacenter = "gone" }))
				},
			},
			Disk: provider.DiskSpec{Bytes: 1 << 30, Type: sim.Datastore}, DisksPerInstance: 14,
			WriteDisk: func(id string, data []byte) error { return s.WriteDisk(carrierName(kindDisk, id), data) },
			ReadDisk:  func(id string, bytes int) ([]byte, error) { return s.ReadDisk(carrierName(kindDisk, id), bytes) },
			Foreign: func(tags map[string]string) (conformance.Foreign, error) {
				id := volumeID(kindDisk, tags[provider.TagCluster], "foreign")
				remove, err := s.AddForeignDisk(context.Background(), carrierName(kindDisk, id))
				return conformance.Foreign{DiskID: id, Remove: remove}, err
			},
			ReadUserData: func(_ context.Context, id string) (string, error) { return s.UserData(vmName(id)) },
		}
	})
	if wrong := s.World.Violations(); len(wrong) > 0 {
		t.Errorf("books: %q", wrong)
	}
}

// faults are what happens to calls of a vCenter.
var faults = []cloudsim.Fault{
	cloudsim.LostReply("CloneVM_Task"), cloudsim.LostReply("PowerOnVM_Task"), cloudsim.LostReply("PowerOffVM_Task"),
	cloudsim.LostReply("Destroy_Task"), cloudsim.LostReply("WaitForUpdatesEx"), cloudsim.LostReply("Login"),
	cloudsim.Unreachable("*"), cloudsim.Slow("CloneVM_Task", 5*time.Millisecond), cloudsim.GoesOn("CloneVM_Task", 5*time.Millisecond), cloudsim.Slow("*", time.Millisecond),
	cloudsim.Refused("*", 500, "NotAuthenticated"), cloudsim.Refused("*", 500, "HostCommunication"), cloudsim.Refused("*", 503, "http"),
	cloudsim.Refused("CloneVM_Task", 500, "task:InsufficientResourcesFault"), cloudsim.Refused("CloneVM_Task", 500, "task:NoDiskSpace"),
	cloudsim.Refused("PowerOnVM_Task", 500, "task:InsufficientMemoryResourcesFault"), cloudsim.Refused("PowerOnVM_Task", 500, "task:InvalidVmConfig"),
	cloudsim.Refused("Destroy_Task", 500, "TaskInProgress"), cloudsim.Refused("Destroy_Task", 500, "task:ResourceInUse"),
	cloudsim.Refused("PowerOffVM_Task", 500, "task:SystemError"),
}

func TestSchedules(t *testing.T) {
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, _ *rand.Rand) cloudsim.Stand {
		s := sim.Start(t)
		s.AddForeign(t, "podvm-of-others", cloudsim.ForeignTags(cloudsim.ScheduleKeys()[0]))
		return cloudsim.Stand{
			World: s.World, Faults: faults,
			Open: func() (provider.Provider, error) { return open(simConfig(s)) },
		}
	})
}

func TestCreateAndDelete(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s, func(c *Config) { c.Network, c.Datastore, c.CPUs, c.Memory = sim.Network, sim.Datastore, 3, 1001 }))
	i, err := create(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	vm := s.VM(vmName(i.ID))
	if vm.InstanceUuid != i.ID || vm.Hardware.NumCPU != 3 || vm.Hardware.MemoryMB != 1004 || vm.Name != vmName(i.ID) {
		t.Errorf("the VM is %s of %d CPUs and %d MiB", vm.InstanceUuid, vm.Hardware.NumCPU, vm.Hardware.MemoryMB)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := s.Leaks(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestFolderIsMadeAnew: a folder that is replaced by another of its name is looked up
// again by each call, and no instance is taken for lost before.
func TestFolderIsMadeAnew(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	unknown := instanceID("unknown")
	for name, call := range map[string]func() error{
		"list":   func() error { _, err := p.ListInstances(t.Context(), cloudsim.OwnerTags("")); return err },
		"delete": func() error { return p.DeleteInstance(t.Context(), unknown) },
		"verify": func() error { return p.ConfigVerifier() },
	} {
		s.ReplaceFolder(t)
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.ReplaceFolder(t)
	if i, err := create(t.Context(), p, "key"); err != nil {
		t.Errorf("create: %v", err)
	} else if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	s.ReplaceFolder(t)
	if _, err := p.GetInstance(t.Context(), unknown); !errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), unknown) {
		t.Errorf("get of what is not there: %v", err)
	}
}

func TestForeignVM(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	p.cloneWait = 10 * time.Millisecond
	id := instanceID("key")
	s.AddForeign(t, vmName(id), nil)
	if _, err := create(t.Context(), p, "key"); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("create: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), id); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
	if _, err := p.GetInstance(t.Context(), id); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if wrong := s.World.Violations(); len(wrong) > 0 {
		t.Errorf("books: %q", wrong)
	}
}
