// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// aroundSnapshot is around for taking snapshots.
func aroundSnapshot(f func(b *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error)) breakage {
	return func(b *broken) {
		snap := b.disk.snap
		b.disk.snap = func(ctx context.Context, key, diskID string, tags map[string]string) (*provider.Snapshot, error) {
			return f(b, ctx, key, diskID, tags, snap)
		}
	}
}

// aroundGetSnapshot is around for look-ups of snapshots.
func aroundGetSnapshot(f func(b *broken, id string, s *provider.Snapshot, err error) (*provider.Snapshot, error)) breakage {
	return func(b *broken) {
		get := b.disk.getSnap
		b.disk.getSnap = func(ctx context.Context, id string) (*provider.Snapshot, error) {
			s, err := get(ctx, id)
			return f(b, id, s, err)
		}
	}
}

// aroundSnapshots is around for lists of snapshots.
func aroundSnapshots(f func(b *broken, ctx context.Context, match map[string]string, list snapLister) ([]provider.Snapshot, error)) breakage {
	return func(b *broken) {
		list := b.disk.listSnaps
		b.disk.listSnaps = func(ctx context.Context, match map[string]string) ([]provider.Snapshot, error) {
			return f(b, ctx, match, list)
		}
	}
}

// aroundSnapshotDelete is around for deleting snapshots.
func aroundSnapshotDelete(f func(b *broken, ctx context.Context, id string, remove deleter) error) breakage {
	return func(b *broken) {
		remove := b.disk.deleteSnap
		b.disk.deleteSnap = func(ctx context.Context, id string) error { return f(b, ctx, id, remove) }
	}
}

// snapshotOf returns a snapshot as it is.
func (b *broken) snapshotOf(id string) *provider.Snapshot {
	s, err := b.Cloud.GetSnapshot(context.Background(), id)
	if err != nil {
		return &provider.Snapshot{}
	}
	return s
}

// snapshotsOf returns the ids of those of a disk, or with a key those of a key.
func (b *broken) snapshotsOf(diskID, key string) (ids []string) {
	lines, _ := b.Leaks()
	for _, line := range lines {
		if line.Kind == fake.KindSnapshot && line.Key != "" && (line.Key == key || key == "" && b.snapshotOf(line.ID).DiskID == diskID) {
			ids = append(ids, line.ID)
		}
	}
	return ids
}

var snapshotMutants = []mutant{
	{name: "a snapshot without tags", breaks: aroundGetSnapshot(func(_ *broken, _ string, s *provider.Snapshot, err error) (*provider.Snapshot, error) {
		if err == nil {
			s.Tags = nil
		}
		return s, err
	}), fails: map[string]string{"snapshot": "its size and tags"}},
	{name: "the tenth call takes another snapshot", breaks: aroundSnapshot(func(b *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error) {
		s, err := snap(ctx, key, diskID, tags)
		if err == nil && b.count("snapshot "+key, 1) == 10 {
			s.ID = "another"
		}
		return s, err
	}), fails: map[string]string{"snapshot-repeated": "and then another"}},
	{name: "one call at a time for a snapshot", breaks: aroundSnapshot(func(b *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error) {
		defer b.count("snapping "+key, -1)
		if b.count("snapping "+key, 1) > 1 {
			return nil, failure("the snapshot is being taken", provider.ErrUnavailable)
		}
		<-time.After(busyTime)
		return snap(ctx, key, diskID, tags)
	}), fails: map[string]string{"snapshot-concurrent": "is being taken"}},
	{name: "a snapshot is its process's", breaks: aroundSnapshot(func(b *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error) {
		if owner := b.marked("snapshot of " + key); owner != "" && owner != b.process {
			return nil, failure("it is somebody else's", provider.ErrAlreadyExists)
		}
		b.mark("snapshot of "+key, b.process)
		return snap(ctx, key, diskID, tags)
	}), fails: map[string]string{"snapshot-reopened": "somebody else's"}},
	{name: "a lost reply takes a second snapshot", breaks: aroundSnapshot(func(_ *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error) {
		if cutShort(ctx) {
			_, err := snap(context.WithoutCancel(ctx), key+"-1", diskID, tags)
			return nil, errors.Join(err, failure("connection reset", provider.ErrUnavailable))
		}
		return snap(ctx, key, diskID, tags)
	}), fails: map[string]string{"snapshot-lost-reply": "has 2 snapshots"}},
	{name: "any snapshot of the key will do", breaks: aroundSnapshot(func(b *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error) {
		s, err := snap(ctx, key, diskID, tags)
		if errors.Is(err, provider.ErrAlreadyExists) {
			return b.snapshotOf(b.snapshotsOf("", key)[0]), nil
		}
		return s, err
	}), fails: map[string]string{"snapshot-other-disk": "returned no error"}},
	{name: "a key of a snapshot is used up", breaks: all(aroundSnapshot(func(b *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error) {
		if b.count("snapshots deleted "+key, 0) >= 3 {
			return nil, failure("the token was used", provider.ErrAlreadyExists)
		}
		return snap(ctx, key, diskID, tags)
	}), aroundSnapshotDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if key := b.snapshotOf(id).Key; key != "" {
			b.count("snapshots deleted "+key, 1)
		}
		return remove(ctx, id)
	})), fails: map[string]string{"snapshot-after-delete": "the token was used"}},
	{name: "only a disk that is free has snapshots", breaks: aroundSnapshot(func(b *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error) {
		if b.there(diskID).InstanceID != "" {
			return nil, failure("detach it first", provider.ErrInUse)
		}
		return snap(ctx, key, diskID, tags)
	}), fails: map[string]string{"snapshot-attached": "detach it first"}},
	{name: "a snapshot of nothing is tried again", breaks: aroundSnapshot(func(_ *broken, ctx context.Context, key, diskID string, tags map[string]string, snap snapper) (*provider.Snapshot, error) {
		s, err := snap(ctx, key, diskID, tags)
		if errors.Is(err, provider.ErrNotFound) {
			return nil, failure("no disk yet", provider.ErrUnavailable)
		}
		return s, err
	}), fails: map[string]string{"snapshot-refused": "no disk yet"}},
	{name: "what never was a snapshot is forbidden", breaks: aroundGetSnapshot(func(_ *broken, id string, s *provider.Snapshot, err error) (*provider.Snapshot, error) {
		if errors.Is(err, provider.ErrNotFound) && id == absentID {
			return nil, failure("no such id, or no right", provider.ErrPermissionDenied)
		}
		return s, err
	}), fails: map[string]string{"snapshot-get-absent": "no right"}},
	{name: "the last snapshot of a page", breaks: aroundSnapshots(func(_ *broken, ctx context.Context, match map[string]string, list snapLister) ([]provider.Snapshot, error) {
		found, err := list(ctx, match)
		return found[:min(1, len(found))], err
	}), fails: map[string]string{"snapshot-list": "shows 1 snapshots, want 2"}},
	{name: "snapshots of all keys of a cluster", breaks: aroundSnapshots(func(b *broken, ctx context.Context, match map[string]string, list snapLister) ([]provider.Snapshot, error) {
		key := match[provider.TagKey]
		found, err := list(ctx, match)
		if err == nil && key != "" && b.count("lists of "+key, 1) == 1 {
			return list(ctx, map[string]string{provider.TagCluster: match[provider.TagCluster]})
		}
		return found, err
	}), fails: map[string]string{"snapshot-list-others": "of another key"}},
	{name: "an empty match is every snapshot's", breaks: aroundSnapshots(func(_ *broken, ctx context.Context, match map[string]string, list snapLister) ([]provider.Snapshot, error) {
		if len(match) == 0 {
			return nil, nil
		}
		return list(ctx, match)
	}), fails: map[string]string{"snapshot-list-empty-match": "error <nil>"}},
	{name: "a snapshot of others is ours", breaks: aroundSnapshotDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		err := remove(ctx, id)
		if errors.Is(err, provider.ErrPermissionDenied) {
			return b.RemoveForeign("", id)
		}
		return err
	}), fails: map[string]string{"snapshot-foreign": "returned no error"}},
	{name: "snapshots of others are listed", breaks: aroundSnapshots(func(b *broken, ctx context.Context, match map[string]string, list snapLister) ([]provider.Snapshot, error) {
		found, err := list(ctx, match)
		lines, _ := b.Leaks()
		for _, line := range lines {
			if err == nil && line.Kind == fake.KindSnapshot && line.Key == "" && provider.HasTags(line.Tags, match) {
				found = append(found, *b.snapshotOf(line.ID))
			}
		}
		return found, err
	}), fails: map[string]string{"snapshot-foreign": "want nothing"}},
	{name: "the disk goes with its snapshot", breaks: aroundSnapshotDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		disk := b.snapshotOf(id).DiskID
		err := remove(ctx, id)
		if err == nil && disk != "" && b.count("snapshots deleted of "+disk, 1) == 1 {
			b.Cloud.DeleteDisk(ctx, disk)
		}
		return err
	}), fails: map[string]string{"snapshot-delete": "not found"}, also: []string{"snapshot-lost-reply", "snapshot-after-delete"}},
	{name: "the first deletion of a snapshot does nothing", breaks: aroundSnapshotDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if b.letIn() && b.snapshotOf(id).Key != "" && b.count("deletions of snapshot "+id, 1) == 1 && len(b.copiesOf(id)) == 0 {
			return nil
		}
		return remove(ctx, id)
	}), fails: map[string]string{"snapshot-delete": "still answers"}},
	{name: "a snapshot that never was is an error", breaks: aroundSnapshotDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if b.snapshotOf(id).ID == "" && b.count("absent snapshots "+id, 1) == 5 {
			return failure("nothing to delete", provider.ErrNotFound)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"snapshot-delete-absent": "nothing to delete"}},
	{name: "nobody looks, so the snapshot is gone", breaks: aroundSnapshotDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		return withoutAccess(remove(ctx, id), nil)
	}), fails: map[string]string{"snapshot-no-access": "DeleteSnapshot with revoked credentials: no error"}},
	{name: "nobody looks, so there is no snapshot", breaks: aroundGetSnapshot(func(_ *broken, _ string, s *provider.Snapshot, err error) (*provider.Snapshot, error) {
		return s, withoutAccess(err, failure("no such snapshot", provider.ErrNotFound))
	}), fails: map[string]string{"snapshot-no-access": "GetSnapshot with revoked credentials has class"}},
	{name: "nobody looks, so there are no snapshots", breaks: aroundSnapshots(func(_ *broken, ctx context.Context, match map[string]string, list snapLister) ([]provider.Snapshot, error) {
		found, err := list(ctx, match)
		return found, withoutAccess(err, nil)
	}), fails: map[string]string{"snapshot-no-access": "ListSnapshots with revoked credentials: no error"}},
	{name: "snapshots go with their disk", breaks: aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		err := remove(ctx, id)
		for _, snapshot := range b.snapshotsOf(id, "") {
			if err == nil {
				b.Cloud.DeleteSnapshot(ctx, snapshot)
			}
		}
		return err
	}), fails: map[string]string{"snapshot-outlives-disk": "not found"}},
	{name: "a disk with snapshots is in use", breaks: aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if len(b.snapshotsOf(id, "")) > 0 {
			return failure("it has snapshots", provider.ErrInUse)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"snapshot-outlives-disk": "it has snapshots"}},
	{name: "a disk does not say that it is from a snapshot", breaks: aroundDisk(func(_ *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		disk, err := create(ctx, key, spec)
		if err == nil {
			disk.FromSnapshot = ""
		}
		return disk, err
	}), fails: map[string]string{"snapshot-restore": "the disk of at least"}},
	{name: "a disk from nothing is empty", breaks: changedDiskSpec(func(_ *broken, _ string, spec *provider.DiskSpec) {
		if spec.FromSnapshot == absentID && spec.FromDisk == "" {
			spec.FromSnapshot = ""
		}
	}), fails: map[string]string{"snapshot-restore-absent": "returned no error"}},
	{name: "a disk from a snapshot is as large as need be", breaks: changedDiskSpec(func(_ *broken, _ string, spec *provider.DiskSpec) {
		if spec.Bytes == 1 && spec.FromSnapshot != "" {
			spec.Bytes = 0
		}
	}), fails: map[string]string{"snapshot-restore-less": "returned no error"}},
	{name: "copies go with their snapshot", breaks: aroundSnapshotDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		copies := b.copiesOf(id)
		err := remove(ctx, id)
		for _, disk := range copies {
			if err == nil {
				b.Cloud.DeleteDisk(ctx, disk)
			}
		}
		return err
	}), fails: map[string]string{"snapshot-delete-copies": "not found"}},
	{name: "a snapshot with copies is in use", breaks: aroundSnapshotDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if len(b.copiesOf(id)) > 0 && b.count("refused "+id, 1) == 1 {
			return failure("disks need it", provider.ErrInUse)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"snapshot-delete-copies": "disks need it"}},
	{name: "a snapshot is of the time when it is read", breaks: aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		disk, err := create(ctx, key, spec)
		if err != nil || spec.FromSnapshot == "" {
			return disk, err
		}
		if data, gone := b.ReadDisk(b.snapshotOf(spec.FromSnapshot).DiskID); gone == nil {
			err = b.WriteDisk(disk.ID, data)
		}
		return disk, err
	}), fails: map[string]string{"snapshot-content": `has the content "after_`}},
}

// copiesOf returns the ids of disks that were made from a snapshot.
func (b *broken) copiesOf(snapshotID string) (ids []string) {
	lines, _ := b.Leaks()
	for _, line := range lines {
		if line.Kind == fake.KindDataDisk && b.there(line.ID).FromSnapshot == snapshotID {
			ids = append(ids, line.ID)
		}
	}
	return ids
}
