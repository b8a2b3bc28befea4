// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloudpowervs"
	"github.com/outrigger/outrigger/test/csisanity"
)

func (s *stand) node(t testing.TB, p *Provider) string {
	t.Helper()
	i, err := p.CreateInstance(t.Context(), "pod", "node", userData, spec("node"))
	if err != nil {
		t.Fatal(err)
	}
	return i.ID
}

func mustDisk(t testing.TB, p *Provider, key string, spec provider.DiskSpec) *provider.Disk {
	t.Helper()
	spec.Tags = cloudsim.OwnerTags(key)
	if spec.FromDisk == "" && spec.FromSnapshot == "" {
		spec.Bytes = 1 << 30
	}
	d, err := p.CreateDisk(t.Context(), key, spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCSISanity(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: s.node(t, p), Zone: sim.Zone})
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	for _, action := range []string{
		"volumes.create", "volumes.get", "volumes.list", "volumes.update", "volumes.delete", "volumes.clone.create", "volumes.clone-tasks.get",
		"pvm-instances.volumes.create", "pvm-instances.volumes.get", "pvm-instances.volumes.update", "pvm-instances.volumes.delete", "pvm-instances.get",
	} {
		action = "powervs:" + action
		for name, fault := range map[string]cloudsim.Fault{
			"lost": cloudsim.LostReply(action), "unreachable": cloudsim.Unreachable(action), "refused": cloudsim.Refused(action, 503, "unavailable").Repeated(6),
			"goes on": cloudsim.GoesOn(action, 10*time.Millisecond), "throttled": cloudsim.Refused(action, 429, "throttled"), "busy": cloudsim.Refused(action, 409, "busy"),
		} {
			t.Run(action+" "+name, func(t *testing.T) {
				t.Parallel() // they wait for the cloud
				s := newStand(t)
				s.GoWithVM = true
				p := s.mustOpen(t)
				node := s.node(t, p)
				s.World.Script(fault)
				if err := cloudsim.DiskLife(t.Context(), p, 1<<30, node); err != nil && !provider.Retryable(err) {
					t.Errorf("an error that nobody tries again: %v", err)
				}
				if s.World.Calls()[action] == 0 {
					t.Errorf("%s is never called", action)
				}
				s.World.ClearFaults()
				if err := errors.Join(cloudsim.DiskLife(t.Context(), p, 1<<30, node), p.DeleteInstance(t.Context(), node)); err != nil {
					t.Fatal(err)
				}
				s.awaitNothing(t)
			})
		}
	}
}

// TestADiskStaysWithoutItsInstance, also where the cloud attaches it so that it goes with the instance.
func TestADiskStaysWithoutItsInstance(t *testing.T) {
	s := newStand(t)
	s.GoWithVM = true
	p := s.mustOpen(t)
	ctx, node := t.Context(), s.node(t, p)
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	a, err := p.AttachDisk(ctx, d.ID, node)
	if err != nil || len(a.Serial) != 20 || !strings.HasSuffix("600507681082018bc8000000"+d.ID[:8], a.Serial) {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := p.DeleteInstance(ctx, node); err != nil {
		t.Fatal(err)
	}
	if err := p.DetachDisk(ctx, d.ID, node); err != nil { // waits until it is gone
		t.Fatal(err)
	}
	other := s.node(t, p)
	if _, err := p.AttachDisk(ctx, d.ID, other); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AttachDisk(ctx, d.ID, node); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("to an instance that is gone: %v", err)
	}
	if err := errors.Join(p.DeleteInstance(ctx, other), p.DetachDisk(ctx, d.ID, other), p.DeleteDisk(ctx, d.ID)); err != nil {
		t.Error(err)
	}
	s.awaitNothing(t)
}

// TestCopiesAtOnce: processes that cannot see each other make one copy.
func TestCopiesAtOnce(t *testing.T) {
	s := newStand(t)
	first := s.mustOpen(t)
	d := mustDisk(t, first, "d", provider.DiskSpec{})
	if err := s.WriteDisk(d.ID, []byte("data")); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	ids := make([]string, 6)
	for i := range ids {
		p := s.mustOpen(t)
		calls.Go(func() {
			copied, err := p.CreateDisk(t.Context(), "c", provider.DiskSpec{FromDisk: d.ID, Bytes: 3 << 30, Type: "tier1", Tags: cloudsim.OwnerTags("c")})
			if err != nil {
				t.Error(err)
				return
			}
			if ids[i] = copied.ID; copied.Bytes != 3<<30 || copied.Type != "tier1" {
				t.Errorf("%+v", copied)
			}
		})
	}
	calls.Wait()
	if t.Failed() || len(slices.Compact(ids)) != 1 {
		t.Fatal(ids)
	}
	if data, err := s.ReadDisk(ids[0], 4); err != nil || string(data) != "data" {
		t.Errorf("%q, %v", data, err)
	}
	if err := errors.Join(first.DeleteDisk(t.Context(), ids[0]), first.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	s.awaitNothing(t)
}

// TestACloneThatFails is told with the cloud's reason, and made again.
func TestACloneThatFails(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	s.World.Script(cloudsim.Fault{Action: sim.LateClone, Code: "late", Message: "the storage is busy"})
	if _, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s")); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "the storage is busy") {
		t.Errorf("%v", err)
	}
	made, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
	if err != nil || !made.Ready || made.Bytes != 1<<30 {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := p.GetDisk(t.Context(), made.ID); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("a snapshot is a disk: %v", err)
	}
	if _, err := p.AttachDisk(t.Context(), made.ID, s.node(t, p)); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("a snapshot is attached: %v", err)
	}
}

// TestACloneWithoutItsName is not a disk: the next call makes it one, or another if it is in state error. What a disk's name is
// on stays, in whatever state.
func TestACloneWithoutItsName(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	ctx := t.Context()
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	s.World.Script(cloudsim.Refused("powervs:volumes.update", http.StatusForbidden, "denied"))
	if _, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")}); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Fatal(err)
	}
	if list, err := p.ListDisks(ctx, cloudsim.OwnerTags("c")); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if err := p.DeleteDisk(ctx, d.ID); err != nil { // the clone does not need it
		t.Fatal(err)
	}
	if _, err := p.CreateDisk(ctx, "c", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("c")}); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("the key has a copy: %v", err)
	}
	made := mustDisk(t, p, "c", provider.DiskSpec{FromDisk: d.ID})
	if got := s.World.Calls()["powervs:volumes.clone.create"]; got != 1 {
		t.Errorf("%d clones", got)
	}
	if err := s.Break(made.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")}); !errors.Is(err, provider.ErrUnknown) || !strings.Contains(err.Error(), made.ID) {
		t.Errorf("a disk in state error: %v", err)
	}
	if _, err := p.GetDisk(ctx, made.ID); err != nil {
		t.Errorf("a disk in state error is gone: %v", err)
	}
	if err := p.DeleteDisk(ctx, made.ID); err != nil {
		t.Error(err)
	}
	s.awaitNothing(t)
}

// TestACloneInStateError is made again.
func TestACloneInStateError(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	ctx := t.Context()
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	s.World.Script(cloudsim.Refused("powervs:volumes.update", http.StatusForbidden, "denied"))
	if _, err := p.CreateSnapshot(ctx, "s", d.ID, cloudsim.OwnerTags("s")); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Fatal(err)
	}
	for _, r := range s.World.Own() {
		if r.ID != d.ID {
			if err := s.Break(r.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	made, err := p.CreateSnapshot(ctx, "s", d.ID, cloudsim.OwnerTags("s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.DeleteSnapshot(ctx, made.ID), p.DeleteDisk(ctx, d.ID)); err != nil {
		t.Error(err)
	}
	s.awaitNothing(t)
}

// TestACloneThatComesLate, of a process that has gone, is never the disk, and goes with it.
func TestACloneThatComesLate(t *testing.T) {
	s := newStand(t)
	dying, p := s.mustOpen(t), s.mustOpen(t)
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	hold := cloudsim.NewHold()
	s.World.Script(cloudsim.Held("powervs:volumes.clone.create", hold))
	ctx, die := context.WithCancel(t.Context())
	died := make(chan error)
	go func() {
		_, err := dying.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")})
		died <- err
	}()
	for deadline := time.Now().Add(time.Minute); s.World.Calls()["powervs:volumes.clone.create"] == 0 && time.Now().Before(deadline); {
		if _, err := p.GetDisk(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
	}
	die()
	if err := <-died; !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	made := mustDisk(t, p, "c", provider.DiskSpec{FromDisk: d.ID})
	hold.Release()
	if again := mustDisk(t, s.mustOpen(t), "c", provider.DiskSpec{FromDisk: d.ID}); again.ID != made.ID {
		t.Errorf("%s and then %s", made.ID, again.ID)
	}
	if own := s.World.Own(); len(own) != 2 {
		t.Errorf("what came late is still there: %v", own)
	}
	if err := s.CloneAgain(made.ID); err != nil { // another, at which nobody looks before the deletion
		t.Fatal(err)
	}
	if err := errors.Join(p.DeleteDisk(t.Context(), made.ID), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	s.awaitNothing(t)
}
