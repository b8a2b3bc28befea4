// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	controller := capabilityOf[provider.DiskController](r, c.provider)
	disk, err := callWith(ctx, r, "CreateDisk", func(ctx context.Context) (*provider.Disk, error) {
		return controller.CreateDisk(ctx, c.key, c.spec)
	})
	if disk != nil {
		r.ledger.disk(disk.ID)
	} else {
		r.ledger.lostDisk()
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

// cutDisks calls f with contexts that end in the middle of what it does, and sees that a
// caller may try again.
func (r *run) cutDisks(what string, f func(context.Context) error) {
	r.Helper()
	for ctx := range r.cutShort(r.instants()) {
		r.checkRetryable(what, r.doWith(ctx, what, func() error { return f(ctx) }))
	}
}
