// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"cmp"
	"context"
	"fmt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

func diskOf(id string, v *volume) *provider.Disk {
	return &provider.Disk{
		ID: id, Key: v.Key, Bytes: v.Bytes, Type: v.Type, FromDisk: v.FromDisk, FromSnapshot: v.FromSnapshot, InstanceID: v.Instance, Tags: v.Tags, Created: v.Created,
	}
}

func snapshotOf(id string, v *volume) *provider.Snapshot {
	return &provider.Snapshot{ID: id, Key: v.Key, DiskID: v.FromDisk, Bytes: v.Bytes, Ready: v.Copied == "", Tags: v.Tags, Created: v.Created}
}

// maxBytes is the largest virtual disk (configuration maximums of vSphere 8), step the unit of the vSphere Client.
const (
	maxBytes = 62 << 40
	step     = 1 << 20
)

func sizeOf(bytes, limit int64) (int64, error) {
	size := (min(bytes, maxBytes) + step - 1) / step * step
	switch {
	case bytes > maxBytes:
		return 0, fmt.Errorf("%w: a disk of %d bytes: vSphere has none of more than %d", provider.ErrInvalidArgument, bytes, int64(maxBytes))
	case limit != 0 && size > limit:
		return 0, fmt.Errorf("%w: a disk of %d bytes has %d, which is more than its limit of %d", provider.ErrInvalidArgument, bytes, size, limit)
	}
	return size, nil
}

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if spec.Zone != "" {
		return nil, fmt.Errorf("%w: zone %q: this provider has no zones", provider.ErrInvalidArgument, spec.Zone)
	}
	id, v, err := p.findOrMakeVolume(ctx, kindDisk, &making{
		volume: volume{Key: key, Name: spec.Name, Tags: tags.Merge(spec.Tags), Type: spec.Type, FromDisk: spec.FromDisk, FromSnapshot: spec.FromSnapshot},
		bytes:  spec.Bytes, limit: spec.Limit,
	})
	if err != nil {
		return nil, err
	}
	if made = diskOf(id, v); !spec.Fits(made) {
		return nil, fmt.Errorf("%w: disk %s of the same key has %d bytes, type %s, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, made.ID, made.Bytes, made.Type, made.FromDisk, made.FromSnapshot)
	}
	return made, nil
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk")
	v, err := p.look(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	return diskOf(diskID, v), nil
}

// look returns a volume, with the instance that has it if that exists; an empty one for somebody else's.
func (p *Provider) look(ctx context.Context, kind, id string) (*volume, error) {
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	k, err := p.carrier(ctx, c, kind, id)
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, noSuch(kind, id)
	case k.volume == nil:
		return &volume{}, nil
	case k.volume.Instance == "":
		return k.volume, nil
	}
	instance, err := p.child(ctx, c, vmName(k.volume.Instance))
	if instance == nil {
		k.volume.Instance = ""
	}
	return k.volume, err
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	err = p.eachVolume(ctx, kindDisk, match, func(id string, v *volume) { list = append(list, *diskOf(id, v)) })
	return list, err
}

// eachVolume calls found with every volume of a kind that has the tags.
func (p *Provider) eachVolume(ctx context.Context, kind string, match map[string]string, found func(id string, v *volume)) error {
	if len(match) == 0 {
		return fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	c, err := p.conn.open(ctx)
	if err != nil {
		return err
	}
	contents, err := p.inventory(ctx, c, []string{"name", entryPath(volumeKey)})
	if err != nil {
		return err
	}
	volumes := map[any]*volume{} // of all VMs, by name
	for _, vm := range contents {
		known := vm.properties()
		v, err := volumeOf(known)
		if err != nil {
			logger().Warn("a VM's record does not parse; the VM is left alone", "error", err)
		}
		volumes[known["name"]] = v
	}
	for name, v := range volumes {
		if v == nil || !provider.HasTags(v.Tags, match) {
			continue
		}
		if _, there := volumes[vmName(v.Instance)]; !there {
			v.Instance = ""
		}
		if id := volumeID(kind, v.Tags[provider.TagCluster], v.Key); name == carrierName(kind, id) {
			found(id, v)
		}
	}
	return nil
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %s", diskID)
	return p.removeVolume(ctx, kindDisk, diskID)
}

func (p *Provider) removeVolume(ctx context.Context, kind, id string) error {
	var first *carrier
	return p.whileVolumeLocked(ctx, id, func(w *watcher) (bool, error) {
		k, err := p.ours(ctx, w, kind, id)
		if err != nil || k == nil {
			return true, err
		}
		if first = cmp.Or(first, k); first.ref != k.ref {
			return true, nil // another that was made since
		}
		return false, p.removeStep(ctx, w, k)
	})
}

// removeStep brings a volume nearer to its end.
func (p *Provider) removeStep(ctx context.Context, w *watcher, k *carrier) error {
	home, err := p.atHome(ctx, w, k)
	if err != nil || !home {
		return err
	}
	if !k.volume.Deleting {
		v := *k.volume
		v.Deleting = true
		return k.save(ctx, w, v)
	}
	if _, err := k.own(); err != nil && k.volume.Copied == "" {
		return err
	}
	return k.destroy(ctx, w)
}

// ResizeDisk implements provider.DiskController.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk %s", diskID)
	size, err := sizeOf(bytes, 0)
	if err != nil {
		return nil, err
	}
	err = p.whileVolumeLocked(ctx, diskID, func(w *watcher) (bool, error) {
		k, err := p.mustOurs(ctx, w, kindDisk, diskID)
		if err != nil {
			return false, err
		}
		grown = diskOf(diskID, k.volume)
		if grown.Bytes >= bytes {
			return true, nil
		}
		return false, p.resizeStep(ctx, w, k, size)
	})
	if err != nil {
		return nil, err
	}
	return grown, nil
}

func (p *Provider) resizeStep(ctx context.Context, w *watcher, k *carrier, size int64) error {
	holder, disk, err := p.holder(ctx, w, k)
	if err == nil && holder != nil {
		err = whole(holder, disk)
	}
	if holder == nil || err != nil {
		return err
	}
	v := *k.volume
	v.Bytes = size
	switch {
	case holder == k.hardware:
		return k.save(ctx, w, v, resized(disk, size))
	case disk.CapacityInKB<<10 < size:
		return holder.change(ctx, w, nil, resized(disk, size))
	}
	return k.save(ctx, w, v)
}

// CreateSnapshot implements provider.DiskSnapshotter. It makes a copy, which does not need the disk: vSphere's own snapshots go with it.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, given map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	id, v, err := p.findOrMakeVolume(ctx, kindSnapshot, &making{volume: volume{Key: key, Tags: tags.Merge(given), FromDisk: diskID}})
	if err != nil {
		return nil, err
	}
	if made = snapshotOf(id, v); made.DiskID != diskID {
		return nil, fmt.Errorf("%w: snapshot %s of the same key is of disk %s", provider.ErrAlreadyExists, made.ID, made.DiskID)
	}
	return made, nil
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (found *provider.Snapshot, err error) {
	defer explain(&err, "get snapshot")
	v, err := p.look(ctx, kindSnapshot, snapshotID)
	if err != nil {
		return nil, err
	}
	return snapshotOf(snapshotID, v), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	err = p.eachVolume(ctx, kindSnapshot, match, func(id string, v *volume) { list = append(list, *snapshotOf(id, v)) })
	return list, err
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) (err error) {
	defer explain(&err, "delete snapshot %s", snapshotID)
	return p.removeVolume(ctx, kindSnapshot, snapshotID)
}
