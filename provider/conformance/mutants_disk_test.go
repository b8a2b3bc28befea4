// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// aroundDisk is around for making disks.
func aroundDisk(f func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error)) breakage {
	return func(b *broken) {
		create := b.disk.create
		b.disk.create = func(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
			return f(b, ctx, key, spec, create)
		}
	}
}

// changedDiskSpec breaks what is asked for.
func changedDiskSpec(change func(b *broken, key string, spec *provider.DiskSpec)) breakage {
	return aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		change(b, key, &spec)
		return create(ctx, key, spec)
	})
}

// changedDiskError replaces errors of making disks by those of another class.
func changedDiskError(from, to error) breakage {
	return aroundDisk(func(_ *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		disk, err := create(ctx, key, spec)
		if errors.Is(err, from) {
			return nil, failure("it went wrong", to)
		}
		return disk, err
	})
}

// changedGetDisk breaks what look-ups return.
func changedGetDisk(change func(b *broken, d *provider.Disk)) breakage {
	return func(b *broken) {
		get := b.disk.get
		b.disk.get = func(ctx context.Context, id string) (*provider.Disk, error) {
			disk, err := get(ctx, id)
			if err == nil {
				change(b, disk)
			}
			return disk, err
		}
	}
}

// aroundDisks is around for lists of disks.
func aroundDisks(f func(b *broken, ctx context.Context, match map[string]string, list diskLister) ([]provider.Disk, error)) breakage {
	return func(b *broken) {
		list := b.disk.list
		b.disk.list = func(ctx context.Context, match map[string]string) ([]provider.Disk, error) {
			return f(b, ctx, match, list)
		}
	}
}

// aroundDiskDelete is around for deleting disks.
func aroundDiskDelete(f func(b *broken, ctx context.Context, id string, remove deleter) error) breakage {
	return func(b *broken) {
		remove := b.disk.delete
		b.disk.delete = func(ctx context.Context, id string) error { return f(b, ctx, id, remove) }
	}
}

// aroundResize is around for resizing.
func aroundResize(f func(b *broken, ctx context.Context, id string, bytes int64, resize resizer) (*provider.Disk, error)) breakage {
	return func(b *broken) {
		resize := b.disk.resize
		b.disk.resize = func(ctx context.Context, id string, bytes int64) (*provider.Disk, error) {
			return f(b, ctx, id, bytes, resize)
		}
	}
}

// there returns a disk as it is.
func (b *broken) there(id string) *provider.Disk {
	disk, err := b.Cloud.GetDisk(context.Background(), id)
	if err != nil {
		return &provider.Disk{}
	}
	return disk
}

// byKey returns the disk of a key as it is.
func (b *broken) byKey(key string) *provider.Disk {
	lines, _ := b.Leaks()
	for _, line := range lines {
		if line.Kind == fake.KindDataDisk && line.Key == key {
			return b.there(line.ID)
		}
	}
	return nil
}

const gib = 1 << 30

var diskMutants = []mutant{
	{name: "a disk without tags", breaks: changedGetDisk(func(_ *broken, d *provider.Disk) { d.Tags = nil }), fails: map[string]string{"disk": "with key"}},
	{name: "the tenth call makes another disk", breaks: aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		disk, err := create(ctx, key, spec)
		if err == nil && b.count("disk "+key, 1) == 10 {
			disk.ID = "another"
		}
		return disk, err
	}), fails: map[string]string{"disk-repeated": "and then another"}},
	{name: "one call at a time for a disk", breaks: aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		defer b.count("making "+key, -1)
		if b.count("making "+key, 1) > 1 {
			return nil, failure("the disk is being made", provider.ErrUnavailable)
		}
		<-time.After(busyTime)
		return create(ctx, key, spec)
	}), fails: map[string]string{"disk-concurrent": "is being made"}},
	{name: "a disk is its process's", breaks: aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		if owner := b.marked("disk of " + key); owner != "" && owner != b.process {
			return nil, failure("it is somebody else's", provider.ErrAlreadyExists)
		}
		b.mark("disk of "+key, b.process)
		return create(ctx, key, spec)
	}), fails: map[string]string{"disk-reopened": "somebody else's"}},
	{name: "a lost reply makes a second disk", breaks: aroundDisk(func(_ *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		if cutShort(ctx) {
			_, err := create(context.WithoutCancel(ctx), key+"-1", spec)
			return nil, errors.Join(err, failure("connection reset", provider.ErrUnavailable))
		}
		return create(ctx, key, spec)
	}), fails: map[string]string{"disk-lost-reply": "has 2 disks"}},
	{name: "any disk of the key will do", breaks: aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		disk, err := create(ctx, key, spec)
		if errors.Is(err, provider.ErrAlreadyExists) {
			return b.byKey(key), nil
		}
		return disk, err
	}), fails: map[string]string{"disk-other-spec": "a larger size returned no error"}},
	{name: "another size is another disk", breaks: aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		if made := b.byKey(key); made != nil && spec.Bytes != 0 && made.Bytes != spec.Bytes && spec.Bytes%gib != 0 {
			return nil, failure("it has another size", provider.ErrAlreadyExists)
		}
		return create(ctx, key, spec)
	}), fails: map[string]string{"disk-fits": "it has another size"}},
	{name: "a key of a disk is used up", breaks: all(aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		if b.count("disks deleted "+key, 0) >= 3 {
			return nil, failure("the token was used", provider.ErrAlreadyExists)
		}
		return create(ctx, key, spec)
	}), aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if key := b.there(id).Key; key != "" {
			b.count("disks deleted "+key, 1)
		}
		return remove(ctx, id)
	})), fails: map[string]string{"disk-after-delete": "the token was used"}},
	{name: "sizes are rounded down", breaks: changedDiskSpec(func(b *broken, key string, spec *provider.DiskSpec) {
		if b.byKey(key) == nil && spec.Limit == 0 && spec.Bytes > gib && spec.Bytes < 1<<50 {
			spec.Bytes -= spec.Bytes % gib
		}
	}), fails: map[string]string{"disk-size": "was made with 1073741824"}},
	{name: "limits are not looked at", breaks: changedDiskSpec(func(b *broken, key string, spec *provider.DiskSpec) {
		if b.byKey(key) == nil && spec.Limit >= spec.Bytes {
			spec.Limit = 0
		}
	}), fails: map[string]string{"disk-limit": "whose limit was"}},
	{name: "the largest disk will do", breaks: changedDiskSpec(func(_ *broken, _ string, spec *provider.DiskSpec) { spec.Bytes = min(spec.Bytes, 64<<40) }),
		fails: map[string]string{"disk-size-huge": "returned no error"}},
	{name: "an unknown type is the default", breaks: changedDiskSpec(func(_ *broken, _ string, spec *provider.DiskSpec) {
		if spec.Type != "fast" && spec.Type != "standard" {
			spec.Type = ""
		}
	}), fails: map[string]string{"disk-unknown-type": "returned no error"}},
	{name: "an unknown zone has no name", breaks: aroundDisk(func(_ *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		disk, err := create(ctx, key, spec)
		if err != nil && spec.Zone != "" && spec.Zone != "fake-zone" {
			return nil, failure("bad request", provider.ErrInvalidArgument)
		}
		return disk, err
	}), fails: map[string]string{"disk-unknown-zone": "does not name outrigger-no-such-zone"}},
	{name: "no size is the least", breaks: changedDiskSpec(func(_ *broken, _ string, spec *provider.DiskSpec) {
		if spec.Bytes == 0 && spec.FromDisk == "" && spec.FromSnapshot == "" {
			spec.Bytes = 1
		}
	}), fails: map[string]string{"disk-refused": "no size returned no error"}},
	{name: "what never was a disk is forbidden", breaks: func(b *broken) {
		get := b.disk.get
		b.disk.get = func(ctx context.Context, id string) (*provider.Disk, error) {
			disk, err := get(ctx, id)
			if errors.Is(err, provider.ErrNotFound) && id == absentID {
				return nil, failure("no such id, or no right", provider.ErrPermissionDenied)
			}
			return disk, err
		}
	}, fails: map[string]string{"disk-get-absent": "no right"}},
	{name: "the last disk of a page", breaks: aroundDisks(func(_ *broken, ctx context.Context, match map[string]string, list diskLister) ([]provider.Disk, error) {
		disks, err := list(ctx, match)
		return disks[:min(1, len(disks))], err
	}), fails: map[string]string{"disk-list": "shows 1 disks, want 2"}},
	{name: "disks of all nodes", breaks: aroundDisks(func(_ *broken, ctx context.Context, match map[string]string, list diskLister) ([]provider.Disk, error) {
		if _, exact := match[provider.TagKey]; !exact && len(match) > 0 {
			match = map[string]string{provider.TagCluster: match[provider.TagCluster]}
		}
		return list(ctx, match)
	}), fails: map[string]string{"disk-list-others": "of another"}},
	{name: "an empty match is every disk's", breaks: aroundDisks(func(_ *broken, ctx context.Context, match map[string]string, list diskLister) ([]provider.Disk, error) {
		if len(match) == 0 {
			return nil, nil
		}
		return list(ctx, match)
	}), fails: map[string]string{"disk-list-empty-match": "error <nil>"}},
	{name: "all that has the tags", breaks: aroundDisks(func(b *broken, ctx context.Context, match map[string]string, list diskLister) ([]provider.Disk, error) {
		disks, err := list(ctx, match)
		lines, _ := b.Leaks()
		for _, line := range lines {
			if err == nil && line.Kind == fake.KindDataDisk && line.Key == "" && provider.HasTags(line.Tags, match) {
				disks = append(disks, *b.there(line.ID))
			}
		}
		return disks, err
	}), fails: map[string]string{"disk-list-foreign": "and not disk-"}},
	{name: "the first deletion of a disk does nothing", breaks: aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if d := b.there(id); b.letIn() && d.Key != "" && d.InstanceID == "" && b.count("deletions of disk "+id, 1) == 1 {
			return nil
		}
		return remove(ctx, id)
	}), fails: map[string]string{"disk-delete": "still answers"}, also: []string{"disk-delete-others", "snapshot-outlives-disk"}},
	{name: "the first disk of an account is never deleted at once", breaks: aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if lines, err := b.Ledger(); err == nil && len(lines) == 1 && b.there(id).ID != "" && b.count("first deletions", 1) == 1 {
			return nil
		}
		return remove(ctx, id)
	}), fails: map[string]string{"disk-delete": "still answers"}},
	{name: "a disk that never was is an error", breaks: aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if b.there(id).ID == "" && b.count("absent deletions "+id, 1) == 5 {
			return failure("nothing to delete", provider.ErrNotFound)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"disk-delete-absent": "nothing to delete"}},
	{name: "deleting a disk detaches it", breaks: aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if instance := b.there(id).InstanceID; instance != "" {
			b.Cloud.DetachDisk(ctx, id, instance)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"disk-delete-attached": "returned no error"}},
	{name: "a disk of others is ours", breaks: aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		err := remove(ctx, id)
		if errors.Is(err, provider.ErrPermissionDenied) {
			return b.RemoveForeign(id, "")
		}
		return err
	}), fails: map[string]string{"disk-delete-foreign": "returned no error"}},
	{name: "all disks of the owner are deleted", breaks: aroundDiskDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		gone := b.there(id)
		err := remove(ctx, id)
		if err == nil && gone.Key != "" && gone.FromDisk == "" && gone.FromSnapshot == "" {
			b.deleteDisksLike(gone)
		}
		return err
	}), fails: map[string]string{"disk-delete-others": "not found"}},
	{name: "nobody looks, so the disk is gone", breaks: aroundDiskDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		return withoutAccess(remove(ctx, id), nil)
	}), fails: map[string]string{"disk-no-access": "DeleteDisk with revoked credentials: no error"}},
	{name: "nobody looks, so there is no disk", breaks: func(b *broken) {
		get := b.disk.get
		b.disk.get = func(ctx context.Context, id string) (*provider.Disk, error) {
			disk, err := get(ctx, id)
			return disk, withoutAccess(err, failure("no such disk", provider.ErrNotFound))
		}
	}, fails: map[string]string{"disk-no-access": "GetDisk with revoked credentials has class"}},
	{name: "nobody looks, so there are no disks", breaks: aroundDisks(func(_ *broken, ctx context.Context, match map[string]string, list diskLister) ([]provider.Disk, error) {
		disks, err := list(ctx, match)
		return disks, withoutAccess(err, nil)
	}), fails: map[string]string{"disk-no-access": "ListDisks with revoked credentials: no error"}},
	{name: "the new size is a promise", breaks: aroundResize(func(b *broken, ctx context.Context, id string, bytes int64, resize resizer) (*provider.Disk, error) {
		if d := b.there(id); d.ID != "" && d.InstanceID == "" && !cutShort(ctx) && b.count("resized "+id, 1) == 1 {
			d.Bytes = max(d.Bytes, bytes)
			return d, nil
		}
		return resize(ctx, id, bytes)
	}), fails: map[string]string{"disk-resize": "after ResizeDisk to"}},
	{name: "less is an error", breaks: aroundResize(func(b *broken, ctx context.Context, id string, bytes int64, resize resizer) (*provider.Disk, error) {
		if bytes < b.there(id).Bytes {
			return nil, failure("a disk cannot shrink", provider.ErrInvalidArgument)
		}
		return resize(ctx, id, bytes)
	}), fails: map[string]string{"disk-resize-less": "cannot shrink"}},
	{name: "only a disk that is free grows", breaks: aroundResize(func(b *broken, ctx context.Context, id string, bytes int64, resize resizer) (*provider.Disk, error) {
		if d := b.there(id); d.InstanceID != "" && b.count("resizing "+id, 1) < 5 && !cutShort(ctx) {
			return nil, failure("detach it first", provider.ErrInUse)
		}
		return resize(ctx, id, bytes)
	}), fails: map[string]string{"disk-resize-attached": "detach it first"}},
	{name: "an attached disk is detached to grow", breaks: aroundResize(func(b *broken, ctx context.Context, id string, bytes int64, resize resizer) (*provider.Disk, error) {
		if d := b.there(id); d.InstanceID != "" && !cutShort(ctx) {
			b.Cloud.DetachDisk(ctx, id, d.InstanceID)
		}
		return resize(ctx, id, bytes)
	}), fails: map[string]string{"disk-resize-attached": "is attached to"}},
	{name: "what is not there is not resized", breaks: aroundResize(func(_ *broken, ctx context.Context, id string, bytes int64, resize resizer) (*provider.Disk, error) {
		disk, err := resize(ctx, id, bytes)
		if errors.Is(err, provider.ErrNotFound) {
			return nil, failure("nothing to resize", provider.ErrUnavailable)
		}
		return disk, err
	}), fails: map[string]string{"disk-resize-absent": "nothing to resize"}},
	{name: "a copy forgets its source", breaks: changedGetDisk(func(_ *broken, d *provider.Disk) { d.FromDisk = "" }), fails: map[string]string{"disk-copy": "the copy of disk"}},
	{name: "a copy of nothing is empty", breaks: changedDiskSpec(func(b *broken, _ string, spec *provider.DiskSpec) {
		if spec.FromDisk == absentID && spec.FromSnapshot == "" {
			spec.FromDisk = ""
		}
	}), fails: map[string]string{"disk-copy-absent": "returned no error"}},
	{name: "a copy is as large as need be", breaks: changedDiskSpec(func(_ *broken, _ string, spec *provider.DiskSpec) {
		if spec.Bytes == 1 && spec.FromDisk != "" {
			spec.Bytes = 0
		}
	}), fails: map[string]string{"disk-copy-less": "returned no error"}},
	{name: "a copy is empty", breaks: aroundDisk(func(b *broken, ctx context.Context, key string, spec provider.DiskSpec, create diskMaker) (*provider.Disk, error) {
		disk, err := create(ctx, key, spec)
		if err == nil && spec.FromDisk != "" {
			err = b.WriteDisk(disk.ID, nil)
		}
		return disk, err
	}), fails: map[string]string{"disk-copy-content": `has the content ""`}},
}

// absentID is the id that the suite asks for and nothing has.
const absentID = "outrigger-no-such-instance"

// deleteDisksLike deletes what has the owner of a disk and no source.
func (b *broken) deleteDisksLike(gone *provider.Disk) {
	lines, _ := b.Leaks()
	for _, line := range lines {
		d := b.there(line.ID)
		if line.Kind == fake.KindDataDisk && d.FromDisk == "" && d.FromSnapshot == "" && d.Tags[provider.TagNode] == gone.Tags[provider.TagNode] {
			b.Cloud.DeleteDisk(context.Background(), line.ID)
		}
	}
}
