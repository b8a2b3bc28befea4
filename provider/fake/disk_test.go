// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

const gib = 1 << 30

func mustDisk(t *testing.T, cloud *fake.Cloud, key string, spec provider.DiskSpec) *provider.Disk {
	t.Helper()
	disk, err := cloud.CreateDisk(t.Context(), key, spec)
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

func mustAttach(t *testing.T, cloud *fake.Cloud, diskID, instanceID string) {
	t.Helper()
	if a, err := cloud.AttachDisk(t.Context(), diskID, instanceID); err != nil || a.Serial == "" {
		t.Fatalf("attachment %+v, %v", a, err)
	}
}

func TestFaultsOfDisks(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	instance, disk := mustCreate(t, cloud, "k"), mustDisk(t, cloud, "d", provider.DiskSpec{Bytes: gib})
	for _, step := range []struct {
		op fake.Op
		do func() error
	}{
		{fake.OpCreateDisk, func() error { _, err := cloud.CreateDisk(t.Context(), "e", provider.DiskSpec{Bytes: gib}); return err }},
		{fake.OpGetDisk, func() error { _, err := cloud.GetDisk(t.Context(), disk.ID); return err }},
		{fake.OpListDisks, func() error { _, err := cloud.ListDisks(t.Context(), owner); return err }},
		{fake.OpAttachDisk, func() error { _, err := cloud.AttachDisk(t.Context(), disk.ID, instance.ID); return err }},
		{fake.OpResizeDisk, func() error { _, err := cloud.ResizeDisk(t.Context(), disk.ID, 2*gib); return err }},
		{fake.OpDetachDisk, func() error { return cloud.DetachDisk(t.Context(), disk.ID, instance.ID) }},
		{fake.OpCreateSnapshot, func() error { _, err := cloud.CreateSnapshot(t.Context(), "s", disk.ID, nil); return err }},
		{fake.OpGetSnapshot, func() error { _, err := cloud.GetSnapshot(t.Context(), "snap-000004"); return err }},
		{fake.OpListSnapshots, func() error { _, err := cloud.ListSnapshots(t.Context(), owner); return err }},
		{fake.OpDeleteSnapshot, func() error { return cloud.DeleteSnapshot(t.Context(), "snap-000004") }},
		{fake.OpDeleteDisk, func() error { return cloud.DeleteDisk(t.Context(), disk.ID) }},
	} {
		for _, fault := range []fake.Fault{fake.Throttled(step.op), fake.LostReply(step.op)} {
			cloud.Inject(fault)
			if err := step.do(); !errors.Is(err, provider.ErrUnavailable) {
				t.Errorf("%s: error %v with fault %v", step.op, err, fault)
			}
		}
		if err := step.do(); err != nil {
			t.Errorf("%s: error %v without a fault", step.op, err)
		}
		if n := cloud.Calls(step.op); n < 3 {
			t.Errorf("%s: %d calls counted", step.op, n)
		}
	}
}

func TestLostReplyOfADisk(t *testing.T) {
	cloud := newCloud(t, fake.Options{Faults: []fake.Fault{fake.LostReply(fake.OpCreateDisk)}})
	if _, err := cloud.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: 1}); !errors.Is(err, provider.ErrUnavailable) {
		t.Fatal(err)
	}
	checkLeaks(t, cloud, fake.KindDataDisk)
	mustDisk(t, cloud, "d", provider.DiskSpec{Bytes: 1})
	checkLeaks(t, cloud, fake.KindDataDisk)
}

// TestDisksInAFolder: another process finds what an instance has.
func TestDisksInAFolder(t *testing.T) {
	dir := t.TempDir()
	cloud := newCloud(t, fake.Options{Dir: dir})
	instance, disk := mustCreate(t, cloud, "k"), mustDisk(t, cloud, "d", provider.DiskSpec{Bytes: gib + 1})
	mustAttach(t, cloud, disk.ID, instance.ID)
	if err := cloud.WriteDisk(disk.ID, []byte("data")); err != nil {
		t.Fatal(err)
	}
	snapshot, err := cloud.CreateSnapshot(t.Context(), "s", disk.ID, owner)
	if err != nil {
		t.Fatal(err)
	}
	next := newCloud(t, fake.Options{Dir: dir})
	if got, err := next.GetDisk(t.Context(), disk.ID); err != nil || got.InstanceID != instance.ID || got.Bytes != 2*gib {
		t.Errorf("%+v, %v", got, err)
	}
	if err := next.DeleteInstance(t.Context(), instance.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := cloud.GetDisk(t.Context(), disk.ID); err != nil || got.InstanceID != "" {
		t.Errorf("after the instance: %+v, %v", got, err)
	}
	copied := mustDisk(t, next, "c", provider.DiskSpec{FromSnapshot: snapshot.ID})
	if data, err := cloud.ReadDisk(copied.ID); err != nil || string(data) != "data" {
		t.Errorf("the copy has %q, %v", data, err)
	}
}

func TestCopiesHaveTheContentOfTheirTime(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	write := func(id, text string) {
		t.Helper()
		if err := cloud.WriteDisk(id, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	disk := mustDisk(t, cloud, "d", provider.DiskSpec{Bytes: gib})
	write(disk.ID, "old")
	snapshot, err := cloud.CreateSnapshot(t.Context(), "s", disk.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	write(disk.ID, "new")
	clone := mustDisk(t, cloud, "clone", provider.DiskSpec{FromDisk: disk.ID})
	write(disk.ID, "newest")
	restored := mustDisk(t, cloud, "restored", provider.DiskSpec{FromSnapshot: snapshot.ID, Bytes: 3 * gib})
	for id, want := range map[string]string{disk.ID: "newest", clone.ID: "new", restored.ID: "old"} {
		if data, err := cloud.ReadDisk(id); err != nil || string(data) != want {
			t.Errorf("disk %s has %q, %v; want %q", id, data, err, want)
		}
	}
}

func TestLimitsOfDisks(t *testing.T) {
	cloud := newCloud(t, fake.Options{Disks: fake.DiskOptions{PerInstance: 1, Unit: 10, Largest: 95, SnapshotGets: 2}})
	instance := mustCreate(t, cloud, "k")
	first, second := mustDisk(t, cloud, "a", provider.DiskSpec{Bytes: 91}), mustDisk(t, cloud, "b", provider.DiskSpec{Bytes: 1})
	if first.Bytes != 95 || second.Bytes != 10 {
		t.Errorf("sizes %d and %d", first.Bytes, second.Bytes)
	}
	mustAttach(t, cloud, first.ID, instance.ID)
	elsewhere := mustDisk(t, cloud, "e", provider.DiskSpec{Bytes: 1, Zone: "fake-zone-b"})
	snapshot, err := cloud.CreateSnapshot(t.Context(), "s", first.ID, nil)
	if err != nil || snapshot.Ready {
		t.Fatalf("%+v, %v; want one that is not ready", snapshot, err)
	}
	fromSnapshot := func() error {
		_, err := cloud.CreateDisk(t.Context(), "c", provider.DiskSpec{FromSnapshot: snapshot.ID})
		return err
	}
	attach := func(disk *provider.Disk) error {
		_, err := cloud.AttachDisk(t.Context(), disk.ID, instance.ID)
		return err
	}
	spec := func(spec provider.DiskSpec) error { _, err := cloud.CreateDisk(t.Context(), "x", spec); return err }
	for _, tc := range []struct {
		class error
		says  string
		got   error
	}{
		{provider.ErrCapacity, "has 1 disks", attach(second)},
		{provider.ErrInvalidArgument, "zone fake-zone-b", attach(elsewhere)},
		{provider.ErrUnavailable, "not ready", fromSnapshot()},
		{provider.ErrInvalidArgument, "limit of 12", spec(provider.DiskSpec{Bytes: 11, Limit: 12})},
		{provider.ErrInvalidArgument, "1 to 95", spec(provider.DiskSpec{Bytes: 96})},
		{provider.ErrInvalidArgument, `"slow"`, spec(provider.DiskSpec{Bytes: 1, Type: "slow"})},
		{provider.ErrInvalidArgument, `"mars"`, spec(provider.DiskSpec{Bytes: 1, Zone: "mars"})},
	} {
		if !errors.Is(tc.got, tc.class) || !strings.Contains(tc.got.Error(), tc.says) {
			t.Errorf("error %v, want class %v with %q", tc.got, tc.class, tc.says)
		}
	}
	if got, err := cloud.GetSnapshot(t.Context(), snapshot.ID); err != nil || got.Ready {
		t.Errorf("second look-up: %+v, %v", got, err)
	}
	if err := fromSnapshot(); err != nil {
		t.Errorf("after two look-ups: %v", err)
	}
}

func TestForeignDisks(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	disk, snapshot, err := cloud.AddForeign(owner)
	if err != nil {
		t.Fatal(err)
	}
	disks, err := cloud.ListDisks(t.Context(), owner)
	snapshots, again := cloud.ListSnapshots(t.Context(), owner)
	if errors.Join(err, again) != nil || len(disks)+len(snapshots) > 0 {
		t.Errorf("lists show %v and %v, errors %v, %v", disks, snapshots, err, again)
	}
	for _, err := range []error{cloud.DeleteDisk(t.Context(), disk), cloud.DeleteSnapshot(t.Context(), snapshot)} {
		if !errors.Is(err, provider.ErrPermissionDenied) {
			t.Errorf("error %v", err)
		}
	}
	checkLeaks(t, cloud, fake.KindDataDisk, fake.KindSnapshot)
	if err := cloud.RemoveForeign(disk, snapshot); err != nil {
		t.Fatal(err)
	}
	checkLeaks(t, cloud)
}
