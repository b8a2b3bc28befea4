// SPDX-License-Identifier: Apache-2.0

//go:build !race

package vsphere

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
	"github.com/outrigger/outrigger/test/csisanity"
	"github.com/outrigger/outrigger/test/tier"
)

func mustCreate(t testing.TB, p *Provider, key string) string {
	t.Helper()
	i, err := create(t.Context(), p, key)
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

func mustAttach(t testing.TB, p *Provider, diskID, instanceID string) string {
	t.Helper()
	a, err := p.AttachDisk(t.Context(), diskID, instanceID)
	if err != nil {
		t.Fatal(err)
	}
	return a.Serial
}

// checkOneHolder sees that no file of a disk is in two VMs.
func checkOneHolder(t testing.TB, s *sim.Site) {
	t.Helper()
	for file, holders := range s.Holders() {
		if len(holders) > 1 {
			t.Errorf("%s is in VMs %v", file, holders)
		}
	}
}

// checkNothing deletes the instances, and sees that nothing is left.
func checkNothing(t testing.TB, s *sim.Site, p *Provider, instances ...string) {
	t.Helper()
	for _, id := range instances {
		if err := p.DeleteInstance(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	left, _ := s.Leaks()
	if holders := s.Holders(); len(left)+len(holders) > 0 {
		t.Errorf("left: %q, %v", left, holders)
	}
	if wrong := s.World.Violations(); len(wrong) > 0 {
		t.Errorf("books: %q", wrong)
	}
}

// awaitCalls waits until vCenter was called so often.
func awaitCalls(t testing.TB, s *sim.Site, action string, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.World.Calls()[action] < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%s was called %d times", action, s.World.Calls()[action])
		}
		s.Holders() // waits for no event, and takes its time
	}
}

func TestCSISanity(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: mustCreate(t, p, "node")})
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	var wait sync.WaitGroup
	defer wait.Wait()
	room, rounds := make(chan struct{}, cloudsim.Workers), tier.Rounds(t, 1, 10) // they wait for vcsim
	for _, action := range []string{"CreateVM_Task", "CloneVM_Task", "ReconfigVM_Task", "Destroy_Task", "FindChild", "RetrievePropertiesEx", "WaitForUpdatesEx"} {
		for name, fault := range map[string]cloudsim.Fault{
			"lost": cloudsim.LostReply(action), "unreachable": cloudsim.Unreachable(action), "refused": cloudsim.Refused(action, 500, "HostCommunication").Repeated(3),
			"goes on": cloudsim.GoesOn(action, 10*time.Millisecond), "busy": cloudsim.Refused(action, 500, "TaskInProgress"), "session": cloudsim.Refused(action, 500, "NotAuthenticated"),
			"fails": cloudsim.Refused(action, 500, "task:SystemError"), "full": cloudsim.Refused(action, 500, "task:NoDiskSpace"), "changed": cloudsim.Refused(action, 500, "task:ConcurrentAccess"),
		} {
			if strings.HasPrefix(fault.Code, "task:") && !strings.HasSuffix(action, "_Task") {
				continue
			}
			if !tier.All() && rand.IntN(3) > 0 {
				continue // some others each time
			}
			for range rounds {
				fault := fault.Skipping(rand.IntN(calledInALife[action]))
				room <- struct{}{}
				wait.Go(func() {
					defer func() { <-room }()
					t.Run(fmt.Sprintf("%s %s after %d", action, name, fault.Skip), func(t *testing.T) { failInTheLifeOfADisk(t, fault) })
				})
			}
		}
	}
}

// calledInALife is how often, at least.
var calledInALife = map[string]int{"CreateVM_Task": 1, "CloneVM_Task": 2, "ReconfigVM_Task": 10, "Destroy_Task": 3, "FindChild": 20, "RetrievePropertiesEx": 20, "WaitForUpdatesEx": 12}

func failInTheLifeOfADisk(t *testing.T, fault cloudsim.Fault) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	node := mustCreate(t, p, "node")
	s.World.ResetCalls()
	s.World.Script(fault)
	err := cloudsim.DiskLife(t.Context(), p, 1<<30, node)
	if err != nil && !provider.Retryable(err) && !errors.Is(err, provider.ErrCapacity) {
		t.Errorf("an error that nobody tries again: %v", err)
	}
	if got := s.World.Calls()[fault.Action]; got <= fault.Skip {
		t.Errorf("%s was called %d times", fault.Action, got)
	}
	s.World.ClearFaults()
	checkOneHolder(t, s)
	if err := cloudsim.DiskLife(t.Context(), p, 1<<30, node); err != nil {
		t.Fatal(err)
	}
	checkNothing(t, s, p, node)
}

// TestADiskThatIsAddedLate, by a process that has stopped for a while, is not: another one has detached it, and attached it elsewhere.
func TestADiskThatIsAddedLate(t *testing.T) {
	s := sim.Start(t)
	slow, p := mustOpen(t, simConfig(s)), mustOpen(t, simConfig(s))
	one, two := mustCreate(t, p, "one"), mustCreate(t, p, "two")
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	hold := cloudsim.NewHold()
	s.World.ResetCalls()
	s.World.Script(cloudsim.Held("ReconfigVM_Task", hold).Skipping(1)) // the carrier's is the first
	done := make(chan error, 1)
	go func() {
		_, err := slow.AttachDisk(t.Context(), d.ID, one)
		done <- err
	}()
	awaitCalls(t, s, "ReconfigVM_Task", 2)
	if _, err := p.AttachDisk(t.Context(), d.ID, two); !errors.Is(err, provider.ErrInUse) {
		t.Errorf("attached to another meanwhile: %v", err)
	}
	if _, err := p.ResizeDisk(t.Context(), d.ID, 2<<30); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("resized meanwhile: %v", err)
	}
	if err := p.DetachDisk(t.Context(), d.ID, one); err != nil {
		t.Fatal(err)
	}
	mustAttach(t, p, d.ID, two)
	hold.Release()
	if err := <-done; !errors.Is(err, provider.ErrInUse) {
		t.Errorf("%v", err)
	}
	checkOneHolder(t, s)
	if got, err := p.GetDisk(t.Context(), d.ID); err != nil || got.InstanceID != two {
		t.Errorf("%+v, %v", got, err)
	}
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, two), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p, one, two)
}

// TestADiskThatIsAttachedWhileItLeaves its instance is in one VM, whichever call is the last.
func TestADiskThatIsAttachedWhileItLeaves(t *testing.T) {
	for held := range 3 { // the carrier's change, the instance's, the carrier's
		s := sim.Start(t)
		slow, p := mustOpen(t, simConfig(s)), mustOpen(t, simConfig(s))
		one := mustCreate(t, p, "one")
		d := mustDisk(t, p, "d", provider.DiskSpec{})
		mustAttach(t, p, d.ID, one)
		hold := cloudsim.NewHold()
		s.World.ResetCalls()
		s.World.Script(cloudsim.Held("ReconfigVM_Task", hold).Skipping(held))
		done := make(chan error, 1)
		go func() { done <- slow.DetachDisk(t.Context(), d.ID, one) }()
		awaitCalls(t, s, "ReconfigVM_Task", held+1)
		mustAttach(t, p, d.ID, one)
		hold.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		checkOneHolder(t, s)
		if err := errors.Join(p.DetachDisk(t.Context(), d.ID, one), p.DeleteDisk(t.Context(), d.ID)); err != nil {
			t.Error(err)
		}
		checkNothing(t, s, p, one)
	}
}

// TestADiskThatHasLeftBetweenTwoLooks at the instance and at the carrier is in one VM.
func TestADiskThatHasLeftBetweenTwoLooks(t *testing.T) {
	s := sim.Start(t)
	slow, p := mustOpen(t, simConfig(s)), mustOpen(t, simConfig(s))
	one, two := mustCreate(t, p, "one"), mustCreate(t, p, "two")
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	s.World.Script(cloudsim.Refused("ReconfigVM_Task", 500, "task:InvalidDeviceSpec").Skipping(1))
	if _, err := p.AttachDisk(t.Context(), d.ID, one); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Fatal(err)
	}
	hold := cloudsim.NewHold()
	s.World.ResetCalls()
	s.World.Script(cloudsim.Held("FindChild", hold).Skipping(1))
	done := make(chan error, 1)
	go func() {
		_, err := slow.AttachDisk(t.Context(), d.ID, one)
		done <- err
	}()
	awaitCalls(t, s, "FindChild", 2)
	if err := p.DetachDisk(t.Context(), d.ID, one); err != nil {
		t.Fatal(err)
	}
	mustAttach(t, p, d.ID, two)
	hold.Release()
	if err := <-done; !errors.Is(err, provider.ErrInUse) {
		t.Errorf("%v", err)
	}
	checkOneHolder(t, s)
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, two), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p, one, two)
}

// TestADiskThatIsAddedToAnInstanceThatGoes stays: what reaches the instance between its last look at its disks and its end fails.
func TestADiskThatIsAddedToAnInstanceThatGoes(t *testing.T) {
	s := sim.Start(t)
	slow, deleting, p := mustOpen(t, simConfig(s)), mustOpen(t, simConfig(s)), mustOpen(t, simConfig(s))
	one, two := mustCreate(t, p, "one"), mustCreate(t, p, "two")
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	add, end := cloudsim.NewHold(), cloudsim.NewHold()
	s.World.ResetCalls()
	s.World.Script(cloudsim.Held("ReconfigVM_Task", add).Skipping(1), cloudsim.Held("Destroy_Task", end))
	done, deleted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := slow.AttachDisk(t.Context(), d.ID, one)
		done <- err
	}()
	awaitCalls(t, s, "ReconfigVM_Task", 2)
	go func() { deleted <- deleting.DeleteInstance(t.Context(), one) }()
	awaitCalls(t, s, "Destroy_Task", 1)
	add.Release()
	if err := <-done; !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("attached to an instance that is being deleted: %v", err)
	}
	end.Release()
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if got, err := p.GetDisk(t.Context(), d.ID); err != nil || got.InstanceID != "" {
		t.Errorf("%+v, %v", got, err)
	}
	mustAttach(t, p, d.ID, two)
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, two), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p, two)
}

// TestACopyOfADiskThatMoves is made again, and is of that disk.
func TestACopyOfADiskThatMoves(t *testing.T) {
	s := sim.Start(t)
	slow, p := mustOpen(t, simConfig(s)), mustOpen(t, simConfig(s))
	one := mustCreate(t, p, "one")
	d, other := mustDisk(t, p, "d", provider.DiskSpec{}), mustDisk(t, p, "other", provider.DiskSpec{})
	if err := errors.Join(s.WriteDisk(carrierName(kindDisk, d.ID), []byte("data")), s.WriteDisk(carrierName(kindDisk, other.ID), []byte("else"))); err != nil {
		t.Fatal(err)
	}
	mustAttach(t, p, d.ID, one)
	hold := cloudsim.NewHold()
	s.World.ResetCalls()
	s.World.Script(cloudsim.Held("CloneVM_Task", hold))
	done := make(chan error, 1)
	go func() {
		_, err := slow.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
		if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "was moved") {
			t.Errorf("%v", err)
		}
		_, err = slow.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
		done <- err
	}()
	awaitCalls(t, s, "CloneVM_Task", 1)
	if err := p.DetachDisk(t.Context(), d.ID, one); err != nil {
		t.Fatal(err)
	}
	mustAttach(t, p, other.ID, one) // which gets unit and key of the first
	hold.Release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	list, err := p.ListSnapshots(t.Context(), cloudsim.OwnerTags("s"))
	if err != nil || len(list) != 1 || s.World.Calls()["CloneVM_Task"] != 2 {
		t.Fatalf("%+v, %v, %d clones", list, err, s.World.Calls()["CloneVM_Task"])
	}
	if data, err := s.ReadDisk(carrierName(kindSnapshot, list[0].ID), 4); err != nil || string(data) != "data" {
		t.Errorf("the snapshot has %q, %v", data, err)
	}
	if err := errors.Join(p.DetachDisk(t.Context(), other.ID, one), p.DeleteDisk(t.Context(), other.ID), p.DeleteDisk(t.Context(), d.ID), p.DeleteSnapshot(t.Context(), list[0].ID)); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p, one)
}

// TestACopyOfAnAttachedDisk has none of the instance's other disks, and nothing that its guest was told.
func TestACopyOfAnAttachedDisk(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	one := mustCreate(t, p, "one")
	var serials, ids []string
	for _, key := range []string{"a", "b", "c"} {
		d := mustDisk(t, p, key, provider.DiskSpec{Name: "data"})
		if err := s.WriteDisk(carrierName(kindDisk, d.ID), []byte("on "+key)); err != nil {
			t.Fatal(err)
		}
		ids, serials = append(ids, d.ID), append(serials, mustAttach(t, p, d.ID, one))
	}
	if slices.Sort(serials); len(slices.Compact(serials)) != 3 || len(serials[0]) != 20 {
		t.Errorf("serial numbers %q", serials)
	}
	if err := p.DeleteDisk(t.Context(), ids[1]); !errors.Is(err, provider.ErrInUse) {
		t.Errorf("delete: %v", err)
	}
	d := mustDisk(t, p, "copy", provider.DiskSpec{FromDisk: ids[1]})
	if data, err := s.ReadDisk(carrierName(kindDisk, d.ID), 4); err != nil || string(data) != "on b" {
		t.Errorf("%q, %v", data, err)
	}
	if list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "one"}); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	// vcsim gives a clone no entries of its source; vCenter gives it all that are not named.
	for _, option := range s.VM(vmName(one)).ExtraConfig {
		if key := option.GetOptionValue().Key; !slices.Contains(instanceKeys, key) && key != enableUUIDKey && key != "govcsim" {
			t.Errorf("a copy has %s of the instance", key)
		}
	}
	ids = append(ids, d.ID)
	if err := p.DeleteInstance(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := p.DeleteDisk(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	checkNothing(t, s, p)
}

// TestASnapshotOfTheInstance, as backups take, keeps its disks where they are, with their size: by name, until it is deleted.
func TestASnapshotOfTheInstance(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	one := mustCreate(t, p, "one")
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	mustAttach(t, p, d.ID, one)
	remove := s.Snapshot(t, vmName(one))
	_, resized := p.ResizeDisk(t.Context(), d.ID, 2<<30)
	for call, err := range map[string]error{"resize": resized, "detach": p.DetachDisk(t.Context(), d.ID, one), "delete": p.DeleteInstance(t.Context(), one)} {
		if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "delete the VM's snapshots") {
			t.Errorf("%s: %v", call, err)
		}
	}
	remove()
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, one), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p, one)
}

// TestDisksRefused: the error names what is wrong.
func TestDisksRefused(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	if d.Type != sim.Datastore {
		t.Errorf("by default a disk is in %q", d.Type)
	}
	for word, spec := range map[string]provider.DiskSpec{
		"nowhere": {Type: "nowhere"}, "zone-1": {Zone: "zone-1"}, "68169720922113": {Bytes: 62<<40 + 1}, "limit": {Bytes: 1<<30 + 1, Limit: 1<<30 + 2},
	} {
		spec.Bytes = max(spec.Bytes, 1<<30)
		if _, err := p.CreateDisk(t.Context(), "other", spec); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
	one := mustCreate(t, p, "one")
	change := func(change func(*watcher, *hardware) error) {
		t.Helper()
		if err := p.locked(t.Context(), one, func(w *watcher) error {
			h, err := p.hardware(t.Context(), w.client, vmName(one))
			if err == nil {
				err = change(w, h)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	change(func(w *watcher, h *hardware) error {
		return h.change(t.Context(), w, &types.OptionValue{Key: enableUUIDKey, Value: "FALSE"})
	})
	if _, err := p.AttachDisk(t.Context(), d.ID, one); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), enableUUIDKey) {
		t.Errorf("attached to a VM made before: %v", err)
	}
	if got, err := p.GetDisk(t.Context(), d.ID); err != nil || got.InstanceID != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p, one)
}

// TestAnInstanceThatWasToBeDeleted and is started again, as CreateInstance does, can have disks.
func TestAnInstanceThatWasToBeDeleted(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	one := mustCreate(t, p, "one")
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	s.World.Script(cloudsim.Refused("Destroy_Task", 500, "NoPermission"))
	if err := p.DeleteInstance(t.Context(), one); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Fatal(err)
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, one); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("attached to an instance that is being deleted: %v", err)
	}
	mustCreate(t, p, "one")
	mustAttach(t, p, d.ID, one)
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, one), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p, one)
}

// TestADeletionThatComesLate deletes no disk that was made of the key since.
func TestADeletionThatComesLate(t *testing.T) {
	s := sim.Start(t)
	slow, p := mustOpen(t, simConfig(s)), mustOpen(t, simConfig(s))
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	hold := cloudsim.NewHold()
	s.World.Script(cloudsim.Held("Destroy_Task", hold))
	done := make(chan error, 1)
	go func() { done <- slow.DeleteDisk(t.Context(), d.ID) }()
	awaitCalls(t, s, "Destroy_Task", 1)
	mustDisk(t, p, "d", provider.DiskSpec{})
	hold.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := p.GetDisk(t.Context(), d.ID); err != nil {
		t.Error(err)
	}
	if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p)
}

// TestADeletionThatStoppedHalfway goes on, also when a disk of the key is made; meanwhile the disk is neither attached nor copied.
func TestADeletionThatStoppedHalfway(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	one := mustCreate(t, p, "one")
	d := mustDisk(t, p, "d", provider.DiskSpec{})
	s.World.Script(cloudsim.Refused("Destroy_Task", 500, "NoPermission"))
	if err := p.DeleteDisk(t.Context(), d.ID); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Fatal(err)
	}
	_, attach := p.AttachDisk(t.Context(), d.ID, one)
	_, copied := p.CreateDisk(t.Context(), "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")})
	for call, err := range map[string]error{"attach": attach, "copy": copied} {
		if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "deleted") {
			t.Errorf("%s: %v", call, err)
		}
	}
	if list, err := p.ListDisks(t.Context(), cloudsim.OwnerTags("d")); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	d = mustDisk(t, p, "d", provider.DiskSpec{})
	mustAttach(t, p, d.ID, one)
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, one), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	checkNothing(t, s, p, one)
}
