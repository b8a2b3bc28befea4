// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/docker"
	"github.com/outrigger/outrigger/test/csisanity"
	"github.com/outrigger/outrigger/test/tier"
)

func TestCSISanity(t *testing.T) {
	p := mustOpen(t, simConfig(sim.Start(t, sim.Versions[0])))
	node, err := create(t.Context(), p, "node")
	if err != nil {
		t.Fatal(err)
	}
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: node.ID})
}

// diskFaults are what happens to calls about disks.
func diskFaults() (faults []cloudsim.Fault) {
	for _, action := range []string{"VolumeCreate", "VolumeList", "VolumeDelete", "ContainerCreate", "ContainerStart", "ContainerInspect", "ContainerLogs", "ContainerKill", "ContainerDelete", "ContainerList"} {
		faults = append(faults, cloudsim.LostReply(action), cloudsim.Unreachable(action), cloudsim.Refused(action, 500, "internal"), cloudsim.GoesOn(action, 5*time.Millisecond))
	}
	return faults
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	skips := tier.Rounds(t, 1, 3)
	for _, fault := range diskFaults() {
		for skip := range skips {
			e := sim.Start(t, sim.Versions[skip%len(sim.Versions)])
			p := mustOpen(t, simConfig(e))
			node, err := create(t.Context(), p, "node")
			if err != nil {
				t.Fatal(err)
			}
			fault.Skip = skip
			e.World.Script(fault)
			if err := cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID); err != nil && !provider.Retryable(err) {
				t.Errorf("%+v: an error that nobody tries again: %v", fault, err)
			}
			e.World.ClearFaults()
			if err := errors.Join(cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID), p.DeleteInstance(t.Context(), node.ID)); err != nil {
				t.Fatalf("%+v: %v", fault, err)
			}
			wantNothing(t, e)
		}
	}
}

// attached makes a disk that an instance has.
func attached(t *testing.T, e *sim.Engine) (p *Provider, d *provider.Disk, instanceID string) {
	t.Helper()
	p = mustOpen(t, simConfig(e))
	node, err := create(t.Context(), p, "node")
	if err != nil {
		t.Fatal(err)
	}
	if d, err = p.CreateDisk(t.Context(), "disk", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("disk")}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, node.ID); err != nil {
		t.Fatal(err)
	}
	return p, d, node.ID
}

// TestMountedDisk: what the guest has mounted stays the instance's, whatever becomes of the container that holds it.
func TestMountedDisk(t *testing.T) {
	e := sim.Start(t, sim.Versions[0])
	p, d, first := attached(t, e)
	second, err := create(t.Context(), p, "second")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.MountDisk(d.ID, true); err != nil {
		t.Fatal(err)
	}
	e.Kill(d.ID + suffixHeld)
	if _, err := p.AttachDisk(t.Context(), d.ID, second.ID); !errors.Is(err, provider.ErrInUse) {
		t.Errorf("attach to another: %v", err)
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, first); err != nil {
		t.Errorf("attach again: %v", err)
	}
	e.Kill(d.ID + suffixHeld)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.DetachDisk(ctx, d.ID, first); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("detach: %v", err)
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, first); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "being detached") {
		t.Errorf("attach while it is detached: %v", err)
	}
	if err := e.MountDisk(d.ID, false); err != nil {
		t.Fatal(err)
	}
	if err := p.DetachDisk(t.Context(), d.ID, first); err != nil {
		t.Error(err)
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, second.ID); err != nil {
		t.Errorf("attach to another: %v", err)
	}
}

// TestDiskOfALostInstance: an instance that others have removed has no disks.
func TestDiskOfALostInstance(t *testing.T) {
	for name, then := range map[string]func(p *Provider, diskID, instanceID string) error{
		"attached to another": func(p *Provider, diskID, _ string) error {
			second, err := create(t.Context(), p, "second")
			if err == nil {
				_, err = p.AttachDisk(t.Context(), diskID, second.ID)
			}
			return err
		},
		"deleted":          func(p *Provider, diskID, _ string) error { return p.DeleteDisk(t.Context(), diskID) },
		"instance deleted": func(p *Provider, _, instanceID string) error { return p.DeleteInstance(t.Context(), instanceID) },
	} {
		t.Run(name, func(t *testing.T) {
			e := sim.Start(t, sim.Versions[0])
			p, d, instance := attached(t, e)
			if err := p.remove(t.Context(), instance); err != nil {
				t.Fatal(err)
			}
			if err := then(p, d.ID, instance); err != nil {
				t.Error(err)
			}
			if got, err := p.GetDisk(t.Context(), d.ID); err == nil && got.InstanceID == instance {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestDiskIsCompleted: a disk that could not be completed is by the next call, and one without the record of its size has its file's.
func TestDiskIsCompleted(t *testing.T) {
	e := sim.Start(t, sim.Versions[0])
	absent := mustOpen(t, simConfig(e, func(c *Config) { c.Image = "no-such-image" }))
	if _, err := absent.CreateDisk(t.Context(), "disk", provider.DiskSpec{Bytes: 1}); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), `"no-such-image" (DOCKER_PODVM_IMAGE)`) {
		t.Errorf("create without an image: %v", err)
	}
	p, d, instance := attached(t, e)
	if _, err := p.ResizeDisk(t.Context(), d.ID, 2<<30); err != nil {
		t.Fatal(err)
	}
	volumes, err := p.volumes(t.Context(), labelDisk)
	if err != nil || len(volumes) != 3 {
		t.Fatalf("%d volumes, %v", len(volumes), err)
	}
	for _, v := range volumes { // as docker volume prune
		if _, err := p.engine.VolumeRemove(t.Context(), v.Name, client.VolumeRemoveOptions{}); err == nil == (v.Name == d.ID) {
			t.Errorf("remove %s: %v", v.Name, err)
		}
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, instance); err != nil {
		t.Error(err)
	}
	if got, err := p.GetDisk(t.Context(), d.ID); err != nil || got.Bytes != 2<<30 || got.InstanceID != instance {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestVolumeOfOthers with the name of one of ours is left alone.
func TestVolumeOfOthers(t *testing.T) {
	e := sim.Start(t, sim.Versions[0])
	p := mustOpen(t, simConfig(e))
	d, err := p.CreateDisk(t.Context(), "key", provider.DiskSpec{Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	e.AddForeignVolume(d.ID)
	if _, err := p.CreateDisk(t.Context(), "key", provider.DiskSpec{Bytes: 1}); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("create: %v", err)
	}
	if err := p.DeleteDisk(t.Context(), d.ID); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
	if _, err := p.GetDisk(t.Context(), d.ID); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	wantNothing(t, e)
}

// TestDiskSchedules: processes that crash, calls that fail and containers that are killed, in any order, take no disk from an
// instance that has it mounted, lose no data, and leave nothing.
func TestDiskSchedules(t *testing.T) {
	for seed := range uint64(tier.Rounds(t, 50, 1000)) {
		random := rand.New(rand.NewPCG(seed, 1))
		e := sim.Start(t, sim.Versions[seed%2])
		s := &diskSchedule{T: t, seed: seed, engine: e, random: random}
		s.run()
		if t.Failed() {
			t.Fatalf("seed %d: %q", seed, s.did)
		}
	}
}

type diskSchedule struct {
	*testing.T
	seed    uint64
	engine  *sim.Engine
	random  *rand.Rand
	did     []string
	nodes   []string
	mounted string // instance that has the disk and its data
}

func (s *diskSchedule) run() {
	p := mustOpen(s.T, simConfig(s.engine))
	for _, key := range []string{"a", "b"} {
		i, err := create(s.Context(), p, key)
		if err != nil {
			s.Fatal(err)
		}
		s.nodes = append(s.nodes, i.ID)
	}
	d, err := p.CreateDisk(s.Context(), "disk", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("disk")})
	if err == nil {
		err = s.engine.WriteDisk(d.ID, []byte("data"))
	}
	if err != nil {
		s.Fatal(err)
	}
	faults := diskFaults()
	for range 12 {
		s.engine.World.ClearFaults()
		if s.random.IntN(2) == 0 {
			s.engine.World.Script(faults[s.random.IntN(len(faults))])
		}
		s.step(p, d.ID)
		if s.random.IntN(3) == 0 {
			p = mustOpen(s.T, simConfig(s.engine))
		}
	}
	s.engine.World.ClearFaults()
	s.settle(p, d.ID)
}

// step makes a call that may be cut short. Only the instance that a call without an error has given the disk to mounts it.
func (s *diskSchedule) step(p *Provider, disk string) {
	ctx, cancel := context.WithTimeout(s.Context(), time.Duration(1+s.random.IntN(30))*time.Millisecond)
	defer cancel()
	node := s.nodes[s.random.IntN(len(s.nodes))]
	var err error
	what := []string{"attach", "attach", "detach", "unmount", "kill", "resize", "snapshot", "copy"}[s.random.IntN(8)]
	switch what {
	case "attach":
		if _, err = p.AttachDisk(ctx, disk, node); err == nil {
			if s.mounted != "" && s.mounted != node {
				s.Errorf("attached to %s, and %s has it mounted", node, s.mounted)
			}
			s.mounted, err = node, s.engine.MountDisk(disk, true)
		}
	case "detach":
		if err = p.DetachDisk(ctx, disk, node); err == nil && s.mounted == node {
			s.Errorf("detached from %s, which has it mounted", node)
		}
	case "unmount":
		s.mounted, err = "", s.engine.MountDisk(disk, false)
	case "kill":
		s.engine.Kill(disk + suffixHeld)
	case "resize":
		_, err = p.ResizeDisk(ctx, disk, int64(1+s.random.IntN(4))<<30)
	case "snapshot":
		_, err = p.CreateSnapshot(ctx, "snapshot", disk, cloudsim.OwnerTags("snapshot"))
	case "copy":
		_, err = p.CreateDisk(ctx, "copy", provider.DiskSpec{FromDisk: disk, Tags: cloudsim.OwnerTags("copy")})
		if errors.Is(err, provider.ErrAlreadyExists) {
			err = nil // it was smaller then
		}
	}
	s.did = append(s.did, what+" "+node[:4]+": "+errText(err))
	if err != nil && !provider.Retryable(err) && !errors.Is(err, provider.ErrInUse) {
		s.Errorf("%s: an error that nobody tries again: %v", what, err)
	}
}

func errText(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}

// settle removes all, as those do who have asked for it.
func (s *diskSchedule) settle(p *Provider, disk string) {
	if err := s.engine.MountDisk(disk, false); err != nil {
		s.Fatal(err)
	}
	for _, node := range s.nodes {
		if err := p.DeleteInstance(s.Context(), node); err != nil {
			s.Error(err)
		}
	}
	if got, err := s.engine.ReadDisk(disk, 4); err != nil || string(got) != "data" {
		s.Errorf("the disk has %q, %v", got, err)
	}
	for _, key := range []string{"disk", "copy", "snapshot"} {
		disks, err := p.ListDisks(s.Context(), cloudsim.OwnerTags(key))
		snapshots, snapshotErr := p.ListSnapshots(s.Context(), cloudsim.OwnerTags(key))
		err = errors.Join(err, snapshotErr)
		for _, d := range disks {
			err = errors.Join(err, p.DeleteDisk(s.Context(), d.ID))
		}
		for _, d := range snapshots {
			err = errors.Join(err, p.DeleteSnapshot(s.Context(), d.ID))
		}
		if err != nil {
			s.Error(err)
		}
	}
	wantNothing(s.T, s.engine)
}
