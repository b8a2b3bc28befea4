// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// diskCreation holds the arguments of a call of CreateDisk, which a check may change.
type diskCreation struct {
	provider provider.Provider
	key      string
	spec     provider.DiskSpec
}

// newDisk returns the creation of a disk of the least size, with a key of its own.
func (r *run) newDisk() diskCreation {
	key := newKey()
	spec := r.subject.Disk
	spec.Name, spec.Tags = podName, r.diskTags(key)
	return diskCreation{r.provider, key, spec}
}

// copyOf returns a creation without a size, which is then that of its source.
func (r *run) copyOf(diskID, snapshotID string) diskCreation {
	c := r.newDisk()
	c.spec.Bytes, c.spec.FromDisk, c.spec.FromSnapshot = 0, diskID, snapshotID
	return c
}

func (r *run) diskTags(key string) map[string]string {
	tags := maps.Clone(r.owner)
	tags[provider.TagKey] = key
	return tags
}

// createDisk makes the call with the limit of a call. The clean-up deletes the disk.
func (r *run) createDisk(c diskCreation) (*provider.Disk, error) {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	return r.createDiskWith(ctx, c)
}

func (r *run) createDiskWith(ctx context.Context, c diskCreation) (*provider.Disk, error) {
	r.Helper()
	r.ledger.usesDisks()
	controller := capabilityOf[provider.DiskController](r, c.provider)
	disk, err := callWith(ctx, r, "CreateDisk", func(ctx context.Context) (*provider.Disk, error) {
		return controller.CreateDisk(ctx, c.key, c.spec)
	})
	if disk != nil {
		r.ledger.disk(disk.ID)
	}
	return disk, err
}

func (r *run) mustDisk(c diskCreation) *provider.Disk {
	r.Helper()
	disk, err := r.createDisk(c)
	switch {
	case err != nil:
		r.Fatalf("CreateDisk: %v", err)
	case disk == nil:
		r.Fatalf("CreateDisk returned neither a disk nor an error")
	case disk.ID == "":
		r.Fatalf("CreateDisk returned a disk without an id")
	}
	return disk
}

func (r *run) getDisk(id string) (*provider.Disk, error) {
	r.Helper()
	return r.getDiskBy(r.provider, id)
}

func (r *run) getDiskBy(p provider.Provider, id string) (*provider.Disk, error) {
	r.Helper()
	controller := capabilityOf[provider.DiskController](r, p)
	disk, err := call(r, "GetDisk", func(ctx context.Context) (*provider.Disk, error) { return controller.GetDisk(ctx, id) })
	if err == nil && disk == nil {
		err = errors.New("GetDisk returned neither a disk nor an error")
	}
	return disk, err
}

func (r *run) mustGetDisk(id string) *provider.Disk {
	r.Helper()
	disk, err := r.getDisk(id)
	if err != nil {
		r.Fatalf("GetDisk(%q): %v", id, err)
	}
	return disk
}

func (r *run) listDisks(match map[string]string) ([]provider.Disk, error) {
	r.Helper()
	return call(r, "ListDisks", func(ctx context.Context) ([]provider.Disk, error) {
		return power[provider.DiskController](r).ListDisks(ctx, match)
	})
}

func (r *run) deleteDisk(id string) error {
	r.Helper()
	return r.do("DeleteDisk", func(ctx context.Context) error { return power[provider.DiskController](r).DeleteDisk(ctx, id) })
}

func (r *run) mustDeleteDisk(id string) {
	r.Helper()
	if err := r.deleteDisk(id); err != nil {
		r.Fatalf("DeleteDisk(%q): %v", id, err)
	}
}

func (r *run) attach(diskID, instanceID string) (*provider.Attachment, error) {
	r.Helper()
	return r.attachBy(r.provider, diskID, instanceID)
}

func (r *run) attachBy(p provider.Provider, diskID, instanceID string) (*provider.Attachment, error) {
	r.Helper()
	controller := capabilityOf[provider.DiskController](r, p)
	return call(r, "AttachDisk", func(ctx context.Context) (*provider.Attachment, error) {
		return controller.AttachDisk(ctx, diskID, instanceID)
	})
}

// mustAttach returns the serial number.
func (r *run) mustAttach(diskID, instanceID string) string {
	r.Helper()
	return r.mustAttachBy(r.provider, diskID, instanceID)
}

func (r *run) mustAttachBy(p provider.Provider, diskID, instanceID string) string {
	r.Helper()
	attachment, err := r.attachBy(p, diskID, instanceID)
	if err != nil {
		r.Fatalf("AttachDisk(%q, %q): %v", diskID, instanceID, err)
	}
	if attachment == nil {
		r.Fatalf("AttachDisk returned neither an attachment nor an error")
	}
	return attachment.Serial
}

func (r *run) detach(diskID, instanceID string) error {
	r.Helper()
	return r.do("DetachDisk", func(ctx context.Context) error {
		return power[provider.DiskController](r).DetachDisk(ctx, diskID, instanceID)
	})
}

func (r *run) mustDetach(diskID, instanceID string) {
	r.Helper()
	if err := r.detach(diskID, instanceID); err != nil {
		r.Fatalf("DetachDisk(%q, %q): %v", diskID, instanceID, err)
	}
}

func (r *run) resize(id string, bytes int64) (*provider.Disk, error) {
	r.Helper()
	return call(r, "ResizeDisk", func(ctx context.Context) (*provider.Disk, error) {
		return power[provider.DiskController](r).ResizeDisk(ctx, id, bytes)
	})
}

// mustResize makes a disk larger and sees that it is.
func (r *run) mustResize(id string, bytes int64) {
	r.Helper()
	disk, err := r.resize(id, bytes)
	switch {
	case err != nil:
		r.Fatalf("ResizeDisk(%q, %d): %v", id, bytes, err)
	case disk == nil:
		r.Fatalf("ResizeDisk returned neither a disk nor an error")
	case disk.Bytes < bytes:
		r.Errorf("ResizeDisk(%q, %d) returned a disk of %d bytes", id, bytes, disk.Bytes)
	}
	if got := r.mustGetDisk(id).Bytes; got < bytes {
		r.Errorf("disk %s has %d bytes after ResizeDisk to %d", id, got, bytes)
	}
}

// attached makes an instance that has a new disk.
func (r *run) attached() (disk *provider.Disk, instance *provider.Instance) {
	r.Helper()
	instance, disk = r.mustCreate(newKey()), r.mustDisk(r.newDisk())
	r.mustAttach(disk.ID, instance.ID)
	return disk, instance
}

// checkHas sees that an instance has a disk; without an instance, that none has.
func (r *run) checkHas(instanceID, diskID, when string) {
	r.Helper()
	if got := r.mustGetDisk(diskID).InstanceID; got != instanceID {
		r.Errorf("%s, disk %s is attached to %q, want %q", when, diskID, got, instanceID)
	}
}

// checkNoDisk waits until a disk is gone.
func (r *run) checkNoDisk(id string) {
	r.Helper()
	r.eventually(func() error {
		if _, err := r.getDisk(id); !errors.Is(err, provider.ErrNotFound) {
			return fmt.Errorf("GetDisk still answers after DeleteDisk: %v", err)
		}
		list, err := r.listDisks(r.owner)
		if err == nil && slices.ContainsFunc(list, func(d provider.Disk) bool { return d.ID == id }) {
			err = fmt.Errorf("the list still shows the deleted disk %s", id)
		}
		return err
	})
}

// checkOneDisk waits until the list shows the disk of a key, and sees that no other
// appears.
func (r *run) checkOneDisk(c diskCreation, id string) {
	r.Helper()
	for range quietLists {
		r.eventually(func() error {
			list, err := r.listDisks(c.spec.Tags)
			if err == nil && (len(list) != 1 || list[0].ID != id) {
				err = fmt.Errorf("the key has %d disks, want %s: %+v", len(list), id, list)
			}
			return err
		})
	}
}

// checkSameID sees that a key has one disk or snapshot.
func (r *run) checkSameID(first, second string) {
	r.Helper()
	if first != second {
		r.Errorf("the same key has %s and then %s", first, second)
	}
}

// createSnapshot makes the call with the limit of a call. The clean-up deletes the
// snapshot.
func (r *run) createSnapshot(p provider.Provider, key, diskID string) (*provider.Snapshot, error) {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	return r.createSnapshotWith(ctx, p, key, diskID)
}

func (r *run) createSnapshotWith(ctx context.Context, p provider.Provider, key, diskID string) (*provider.Snapshot, error) {
	r.Helper()
	r.ledger.usesSnapshots()
	snapshotter := capabilityOf[provider.DiskSnapshotter](r, p)
	snapshot, err := callWith(ctx, r, "CreateSnapshot", func(ctx context.Context) (*provider.Snapshot, error) {
		return snapshotter.CreateSnapshot(ctx, key, diskID, r.diskTags(key))
	})
	if snapshot != nil {
		r.ledger.snapshot(snapshot.ID)
	}
	return snapshot, err
}

func (r *run) mustSnapshot(key, diskID string) *provider.Snapshot {
	r.Helper()
	return r.mustSnapshotBy(r.provider, key, diskID)
}

func (r *run) mustSnapshotBy(p provider.Provider, key, diskID string) *provider.Snapshot {
	r.Helper()
	snapshot, err := r.createSnapshot(p, key, diskID)
	switch {
	case err != nil:
		r.Fatalf("CreateSnapshot: %v", err)
	case snapshot == nil:
		r.Fatalf("CreateSnapshot returned neither a snapshot nor an error")
	case snapshot.ID == "":
		r.Fatalf("CreateSnapshot returned a snapshot without an id")
	}
	return snapshot
}

func (r *run) getSnapshot(id string) (*provider.Snapshot, error) {
	r.Helper()
	return r.getSnapshotBy(r.provider, id)
}

func (r *run) getSnapshotBy(p provider.Provider, id string) (*provider.Snapshot, error) {
	r.Helper()
	snapshotter := capabilityOf[provider.DiskSnapshotter](r, p)
	snapshot, err := call(r, "GetSnapshot", func(ctx context.Context) (*provider.Snapshot, error) { return snapshotter.GetSnapshot(ctx, id) })
	if err == nil && snapshot == nil {
		err = errors.New("GetSnapshot returned neither a snapshot nor an error")
	}
	return snapshot, err
}

// ready waits until a disk can be made from a snapshot: copying a disk takes as long as a
// call may.
func (r *run) ready(id string) *provider.Snapshot {
	r.Helper()
	var snapshot *provider.Snapshot
	if err := r.pollFor(r.subject.Limits.Call, func() (err error) {
		if snapshot, err = r.getSnapshot(id); err == nil && !snapshot.Ready {
			err = fmt.Errorf("snapshot %s is not ready", id)
		}
		return err
	}); err != nil {
		r.Fatalf("within %s: %v", r.subject.Limits.Call, err)
	}
	return snapshot
}

// readySnapshot takes a snapshot and waits for it.
func (r *run) readySnapshot(diskID string) *provider.Snapshot {
	r.Helper()
	return r.ready(r.mustSnapshot(newKey(), diskID).ID)
}

func (r *run) listSnapshots(match map[string]string) ([]provider.Snapshot, error) {
	r.Helper()
	return call(r, "ListSnapshots", func(ctx context.Context) ([]provider.Snapshot, error) {
		return power[provider.DiskSnapshotter](r).ListSnapshots(ctx, match)
	})
}

func (r *run) deleteSnapshot(id string) error {
	r.Helper()
	return r.do("DeleteSnapshot", func(ctx context.Context) error {
		return power[provider.DiskSnapshotter](r).DeleteSnapshot(ctx, id)
	})
}

func (r *run) mustDeleteSnapshot(id string) {
	r.Helper()
	if err := r.deleteSnapshot(id); err != nil {
		r.Fatalf("DeleteSnapshot(%q): %v", id, err)
	}
}

// checkNoSnapshot waits until a snapshot is gone.
func (r *run) checkNoSnapshot(id string) {
	r.Helper()
	r.eventually(func() error {
		if _, err := r.getSnapshot(id); !errors.Is(err, provider.ErrNotFound) {
			return fmt.Errorf("GetSnapshot still answers after DeleteSnapshot: %v", err)
		}
		list, err := r.listSnapshots(r.owner)
		if err == nil && slices.ContainsFunc(list, func(s provider.Snapshot) bool { return s.ID == id }) {
			err = fmt.Errorf("the list still shows the deleted snapshot %s", id)
		}
		return err
	})
}

// checkOneSnapshot is checkOneDisk for snapshots.
func (r *run) checkOneSnapshot(key, id string) {
	r.Helper()
	for range quietLists {
		r.eventually(func() error {
			list, err := r.listSnapshots(r.diskTags(key))
			if err == nil && (len(list) != 1 || list[0].ID != id) {
				err = fmt.Errorf("the key has %d snapshots, want %s: %+v", len(list), id, list)
			}
			return err
		})
	}
}

// cutDisks calls f with contexts that end in the middle of what it does, and sees that a
// caller may try again.
func (r *run) cutDisks(what string, f func(context.Context) error) {
	r.Helper()
	for ctx := range r.cutShort(r.instants()) {
		r.checkRetryable(what, r.doWith(ctx, what, func() error { return f(ctx) }))
	}
}

// removeSnapshots and removeDisks delete what is in the ledger, and then what the lists
// show.
func (r *run) removeSnapshots() {
	r.Helper()
	if ids, used := r.ledger.takeSnapshots(); used {
		r.removeEach("snapshot", ids, func() (ids []string, err error) {
			list, err := r.listSnapshots(r.owner)
			for _, s := range list {
				ids = append(ids, s.ID)
			}
			return ids, err
		}, func(id string) error {
			err := r.deleteSnapshot(id)
			if _, got := r.getSnapshot(id); err == nil && !errors.Is(got, provider.ErrNotFound) {
				err = fmt.Errorf("snapshot %s is still there: %w", id, got)
			}
			return err
		})
	}
}

func (r *run) removeDisks() {
	r.Helper()
	if ids, used := r.ledger.takeDisks(); used {
		r.removeEach("disk", ids, func() (ids []string, err error) {
			list, err := r.listDisks(r.owner)
			for _, d := range list {
				ids = append(ids, d.ID)
			}
			return ids, err
		}, r.removeDisk)
	}
}

// removeDisk detaches a disk that a broken provider has left attached.
func (r *run) removeDisk(id string) error {
	r.Helper()
	err := r.deleteDisk(id)
	disk, got := r.getDisk(id)
	switch {
	case errors.Is(got, provider.ErrNotFound):
		return err
	case err == nil:
		return fmt.Errorf("disk %s is still there: %v", id, got)
	case got == nil && disk.InstanceID != "":
		return errors.Join(err, r.detach(id, disk.InstanceID))
	}
	return err
}

// removeEach deletes ids and what list shows until it shows nothing, several times since
// nobody may know the id of what a call made that was cut short.
func (r *run) removeEach(kind string, ids []string, list func() ([]string, error), remove func(id string) error) {
	r.Helper()
	quiet := 0
	again := func() error {
		for quiet < quietLists {
			listed, err := list()
			ids = append(ids, listed...)
			ids = slices.Compact(slices.Sorted(slices.Values(ids)))
			for _, id := range ids {
				err = errors.Join(err, remove(id))
			}
			if err != nil || len(listed) > 0 {
				quiet = 0
				return errors.Join(err, fmt.Errorf("the list shows %v", listed))
			}
			ids, quiet = nil, quiet+1
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	}
	if err := r.poll(again); err != nil {
		for _, id := range ids {
			r.left(kind + " " + id)
		}
		r.Errorf("clean up of what is a %s: %v", kind, err)
	}
}
