// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

var snapshotChecks = []Check{
	{"snapshot", "CreateSnapshot takes a snapshot that look-ups show, with its key, disk and tags, and that becomes ready.", []need{needsSnapshots}, checkSnapshot},
	{"snapshot-repeated", "Two calls with the same key give the same snapshot.", []need{needsSnapshots}, checkSnapshotRepeated},
	{"snapshot-concurrent", "Two calls with the same key at the same time give the same snapshot.", []need{needsSnapshots}, checkSnapshotConcurrent},
	{"snapshot-reopened", "Two calls with the same key from different processes give the same snapshot.", []need{needsSnapshots, needsReopen}, checkSnapshotReopened},
	{"snapshot-lost-reply", "Two calls with the same key after a lost reply give one snapshot.", []need{needsSnapshots}, checkSnapshotLostReply},
	{"snapshot-other-disk", "A key that has the snapshot of another disk is ErrAlreadyExists.", []need{needsSnapshots}, checkSnapshotOtherDisk},
	{"snapshot-after-delete", "A key is free again when its snapshot is deleted.", []need{needsSnapshots}, checkSnapshotAfterDelete},
	{"snapshot-attached", "A snapshot can be of a disk that is attached, which stays attached.", []need{needsSnapshots}, checkSnapshotAttached},
	{"snapshot-refused", "An empty key of a snapshot is ErrInvalidArgument, and a disk that does not exist is ErrNotFound.", []need{needsSnapshots}, checkSnapshotRefused},
	{"snapshot-get-absent", "GetSnapshot returns ErrNotFound for an id that does not exist.", []need{needsSnapshots}, checkSnapshotGetAbsent},
	{"snapshot-list", "ListSnapshots returns every snapshot whose tags include all of match, with key and disk.", []need{needsSnapshots}, checkSnapshotList},
	{"snapshot-list-others", "ListSnapshots returns only snapshots whose tags include all of match.", []need{needsSnapshots}, checkSnapshotListOthers},
	{"snapshot-list-empty-match", "ListSnapshots with an empty match is ErrInvalidArgument.", []need{needsSnapshots}, checkSnapshotListEmptyMatch},
	{"snapshot-foreign", "A snapshot that CreateSnapshot did not make is not listed, and deleting it is ErrPermissionDenied.", []need{needsSnapshots, needsForeign}, checkSnapshotForeign},
	{"snapshot-delete", "DeleteSnapshot removes a snapshot, and not its disk.", []need{needsSnapshots}, checkSnapshotDelete},
	{"snapshot-delete-absent", "Deleting a snapshot that does not exist returns nil.", []need{needsSnapshots}, checkSnapshotDeleteAbsent},
	{"snapshot-no-access", "Snapshots without access to the account are an error and not ErrNotFound, nor an empty list.", []need{needsSnapshots, needsNoAccess}, checkSnapshotNoAccess},
	{"snapshot-outlives-disk", "Snapshots outlive the disk that they are of.", []need{needsSnapshots}, checkSnapshotOutlivesDisk},
	{"snapshot-restore", "A disk from a snapshot is at least as large as that, and larger when asked.", []need{needsSnapshots}, checkSnapshotRestore},
	{"snapshot-restore-absent", "A disk from a snapshot that does not exist is ErrNotFound.", []need{needsSnapshots}, checkSnapshotRestoreAbsent},
	{"snapshot-restore-less", "A disk that is less than the snapshot is ErrInvalidArgument.", []need{needsSnapshots}, checkSnapshotRestoreLess},
	{"snapshot-delete-copies", "Disks that were made from a snapshot stay when that is deleted.", []need{needsSnapshots}, checkSnapshotDeleteCopies},
	{"snapshot-content", "Writes that are later than CreateSnapshot are not in the snapshot.", []need{needsSnapshots, needsContent}, checkSnapshotContent},
}

func checkSnapshot(r *run) {
	disk, key := r.mustDisk(r.newDisk()), newKey()
	made := r.mustSnapshot(key, disk.ID)
	got := r.ready(made.ID)
	if got.ID != made.ID || got.Key != key || got.DiskID != disk.ID || got.Bytes <= 0 || !provider.HasTags(got.Tags, r.diskTags(key)) {
		r.Errorf("GetSnapshot returned %+v, want %s of disk %s with key %s and its size and tags", got, made.ID, disk.ID, key)
	}
}

func checkSnapshotRepeated(r *run) {
	disk, key := r.mustDisk(r.newDisk()), newKey()
	first := r.mustSnapshot(key, disk.ID)
	for range repetitions - 1 {
		r.checkSameID(first.ID, r.mustSnapshot(key, disk.ID).ID)
	}
}

func checkSnapshotConcurrent(r *run) {
	disk, key := r.mustDisk(r.newDisk()), newKey()
	r.ledger.lostSnapshot()
	snapshotter := power[provider.DiskSnapshotter](r)
	ids := make(chan string, racers)
	for _, err := range r.atOnce("CreateSnapshot", func(ctx context.Context) error {
		snapshot, err := snapshotter.CreateSnapshot(ctx, key, disk.ID, r.diskTags(key))
		if err == nil && snapshot != nil {
			ids <- snapshot.ID
		}
		return err
	}) {
		r.Errorf("CreateSnapshot, called %d times at once: %v", racers, err)
	}
	close(ids)
	for id := range ids {
		r.checkOneSnapshot(key, id)
	}
}

func checkSnapshotReopened(r *run) {
	disk, key := r.mustDisk(r.newDisk()), newKey()
	first := r.mustSnapshot(key, disk.ID)
	r.checkSameID(first.ID, r.mustSnapshotBy(r.reopen(), key, disk.ID).ID)
}

func checkSnapshotLostReply(r *run) {
	disk := r.mustDisk(r.newDisk())
	for ctx := range r.cutShort(r.instants()) {
		key := newKey()
		_, err := r.createSnapshotWith(ctx, r.provider, key, disk.ID)
		r.checkRetryable("CreateSnapshot", err)
		made := r.mustSnapshot(key, disk.ID)
		r.checkOneSnapshot(key, made.ID)
		r.mustDeleteSnapshot(made.ID)
	}
}

func checkSnapshotOtherDisk(r *run) {
	first, second, key := r.mustDisk(r.newDisk()), r.mustDisk(r.newDisk()), newKey()
	made := r.mustSnapshot(key, first.ID)
	_, err := r.createSnapshot(r.provider, key, second.ID)
	r.checkClass("CreateSnapshot of the same key and another disk", err, provider.ErrAlreadyExists)
	r.checkOneSnapshot(key, made.ID)
}

func checkSnapshotAfterDelete(r *run) {
	disk, key := r.mustDisk(r.newDisk()), newKey()
	for range 3 {
		r.mustDeleteSnapshot(r.mustSnapshot(key, disk.ID).ID)
	}
	r.checkOneSnapshot(key, r.mustSnapshot(key, disk.ID).ID)
}

func checkSnapshotAttached(r *run) {
	disk, instance := r.attached()
	r.readySnapshot(disk.ID)
	r.checkHas(instance.ID, disk.ID, "after CreateSnapshot")
}

func checkSnapshotRefused(r *run) {
	disk := r.mustDisk(r.newDisk())
	_, err := r.createSnapshot(r.provider, "", disk.ID)
	r.checkClass("CreateSnapshot with an empty key", err, provider.ErrInvalidArgument)
	_, err = r.createSnapshot(r.provider, newKey(), absentID)
	r.checkClass("CreateSnapshot of a disk that does not exist", err, provider.ErrNotFound, provider.ErrInvalidArgument)
}

func checkSnapshotGetAbsent(r *run) {
	for range repetitions {
		_, err := r.getSnapshot(absentID)
		r.checkClass("GetSnapshot of an id that does not exist", err, provider.ErrNotFound, provider.ErrInvalidArgument)
	}
}

func checkSnapshotList(r *run) {
	disk := r.mustDisk(r.newDisk())
	made := map[string]string{}
	for range 2 {
		key := newKey()
		made[key] = r.mustSnapshot(key, disk.ID).ID
	}
	r.eventually(func() error {
		list, err := r.listSnapshots(r.owner)
		if err == nil && len(list) != len(made) {
			err = fmt.Errorf("the list shows %d snapshots, want %d", len(list), len(made))
		}
		for _, s := range list {
			if made[s.Key] != s.ID || s.DiskID != disk.ID || !provider.HasTags(s.Tags, r.diskTags(s.Key)) {
				err = errors.Join(err, fmt.Errorf("the list shows %+v", s))
			}
		}
		return err
	})
}

func checkSnapshotListOthers(r *run) {
	disk, mine, theirs := r.mustDisk(r.newDisk()), newKey(), newKey()
	r.mustSnapshot(mine, disk.ID)
	other := r.mustSnapshot(theirs, disk.ID)
	r.checkOneSnapshot(theirs, other.ID)
	list, err := r.listSnapshots(r.diskTags(mine))
	if err != nil || slices.ContainsFunc(list, func(s provider.Snapshot) bool { return s.ID == other.ID }) {
		r.Errorf("the list shows a snapshot of another key: %+v, error %v", list, err)
	}
}

func checkSnapshotListEmptyMatch(r *run) {
	for _, match := range []map[string]string{nil, {}} {
		if list, err := r.listSnapshots(match); !errors.Is(err, provider.ErrInvalidArgument) {
			r.Errorf("ListSnapshots with an empty match returned %d snapshots, error %v", len(list), err)
		}
	}
}

func checkSnapshotForeign(r *run) {
	f := r.foreign()
	defer r.removeForeign(f)
	if f.SnapshotID == "" {
		r.Skipf("not checked: Subject.Foreign makes no snapshot")
	}
	r.checkClass("DeleteSnapshot of somebody else's", r.deleteSnapshot(f.SnapshotID), provider.ErrPermissionDenied)
	for range quietLists {
		list, err := r.listSnapshots(r.owner)
		if err != nil || len(list) > 0 {
			r.Errorf("the list shows %+v, error %v; want nothing, and not %s", list, err, f.SnapshotID)
		}
	}
	if _, err := r.getSnapshot(f.SnapshotID); err != nil {
		r.Errorf("GetSnapshot of somebody else's: %v", err)
	}
}

func checkSnapshotDelete(r *run) {
	disk := r.mustDisk(r.newDisk())
	made := r.readySnapshot(disk.ID)
	r.mustDeleteSnapshot(made.ID)
	r.checkNoSnapshot(made.ID)
	r.mustGetDisk(disk.ID)
}

func checkSnapshotDeleteAbsent(r *run) {
	made := r.readySnapshot(r.mustDisk(r.newDisk()).ID)
	for _, id := range []string{absentID, made.ID} {
		for range repetitions {
			if err := r.deleteSnapshot(id); err != nil && (id != absentID || !errors.Is(err, provider.ErrInvalidArgument)) {
				r.Errorf("DeleteSnapshot(%q), again: %v", id, err)
			}
		}
	}
}

func checkSnapshotNoAccess(r *run) {
	made := r.readySnapshot(r.mustDisk(r.newDisk()).ID)
	r.withoutAccess(func(why string, p provider.Provider) {
		snapshotter := capabilityOf[provider.DiskSnapshotter](r, p)
		r.wantRefusal("DeleteSnapshot", why, r.do("DeleteSnapshot", func(ctx context.Context) error { return snapshotter.DeleteSnapshot(ctx, made.ID) }))
		_, err := r.getSnapshotBy(p, made.ID)
		r.wantRefusal("GetSnapshot", why, err)
		r.wantRefusal("ListSnapshots", why, r.do("ListSnapshots", func(ctx context.Context) error {
			_, err := snapshotter.ListSnapshots(ctx, r.owner)
			return err
		}))
	})
	r.ready(made.ID)
}

func checkSnapshotOutlivesDisk(r *run) {
	disk := r.mustDisk(r.newDisk())
	made := r.readySnapshot(disk.ID)
	r.mustDeleteDisk(disk.ID)
	r.checkNoDisk(disk.ID)
	if got := r.ready(made.ID); got.DiskID != disk.ID {
		r.Errorf("the snapshot of a disk that was deleted is of disk %q, want %q", got.DiskID, disk.ID)
	}
	r.mustDisk(r.copyOf("", made.ID))
}

func checkSnapshotRestore(r *run) {
	made := r.readySnapshot(r.mustDisk(r.newDisk()).ID)
	for _, bytes := range []int64{0, 2 * made.Bytes} {
		c := r.copyOf("", made.ID)
		c.spec.Bytes = bytes
		disk := r.mustDisk(c)
		if disk.Bytes < max(bytes, made.Bytes) || disk.FromSnapshot != made.ID {
			r.Errorf("the disk of at least %d bytes from snapshot %s of %d bytes is %+v", bytes, made.ID, made.Bytes, disk)
		}
	}
}

func checkSnapshotRestoreAbsent(r *run) {
	c := r.newDisk()
	c.spec.FromSnapshot = absentID
	_, err := r.createDisk(c)
	r.checkClass("a disk from a snapshot that does not exist", err, provider.ErrNotFound, provider.ErrInvalidArgument)
}

func checkSnapshotRestoreLess(r *run) {
	c := r.copyOf("", r.readySnapshot(r.mustDisk(r.newDisk()).ID).ID)
	c.spec.Bytes = 1
	_, err := r.createDisk(c)
	r.checkClass("a disk that is less than the snapshot", err, provider.ErrInvalidArgument)
}

func checkSnapshotDeleteCopies(r *run) {
	made := r.readySnapshot(r.mustDisk(r.newDisk()).ID)
	c := r.copyOf("", made.ID)
	disk := r.mustDisk(c)
	r.mustDeleteSnapshot(made.ID)
	r.checkNoSnapshot(made.ID)
	r.checkSameID(disk.ID, r.mustDisk(c).ID)
	if got := r.mustGetDisk(disk.ID); got.FromSnapshot != made.ID {
		r.Errorf("disk %s is from snapshot %q after that was deleted, want %q", disk.ID, got.FromSnapshot, made.ID)
	}
}

func checkSnapshotContent(r *run) {
	source := r.mustDisk(r.newDisk())
	before, after := []byte("before "+source.ID), []byte("after_ "+source.ID)
	r.write(source.ID, before)
	made := r.mustSnapshot(newKey(), source.ID)
	r.write(source.ID, after)
	r.ready(made.ID)
	r.checkContentOf(r.mustDisk(r.copyOf("", made.ID)).ID, before)
}
