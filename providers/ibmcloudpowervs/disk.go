// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// disk converts a volume to the contract's type.
func (p *Provider) disk(v *volume) *provider.Disk {
	pairs := decodeTags(v.UserTags)
	return &provider.Disk{
		ID: v.ID, Key: v.keyOf(kindDisk), Bytes: v.bytes(), Type: v.Type, Zone: p.cfg.Zone, FromDisk: pairs[tagFromDisk], FromSnapshot: pairs[tagFromSnapshot],
		InstanceID: v.instance(), Tags: shown(pairs), Created: v.Created.UTC(),
	}
}

func snapshot(v *volume) *provider.Snapshot {
	pairs := decodeTags(v.UserTags)
	return &provider.Snapshot{
		ID: v.ID, Key: v.keyOf(kindSnapshot), DiskID: pairs[tagFromDisk], Bytes: v.bytes(), Ready: v.State == stateAvailable, Tags: shown(pairs), Created: v.Created.UTC(),
	}
}

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if spec.Zone != "" && spec.Zone != p.cfg.Zone {
		return nil, fmt.Errorf("%w: zone %q: the workspace is in %s (-zone, POWERVS_ZONE)", provider.ErrInvalidArgument, spec.Zone, p.cfg.Zone)
	}
	from := map[string]string{}
	if spec.FromDisk != "" {
		from[tagFromDisk] = spec.FromDisk
	}
	if spec.FromSnapshot != "" {
		from[tagFromSnapshot] = spec.FromSnapshot
	}
	m := p.newMaking(kindDisk, key, spec.Tags, from)
	v, err := p.findOrMakeVolume(ctx, m, func() error { return p.plan(ctx, m, spec) })
	if err != nil {
		return nil, err
	}
	if made = p.disk(v); !spec.Fits(made) {
		return nil, fmt.Errorf("%w: disk %s of the same key has %d bytes, type %s, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, made.ID, made.Bytes, made.Type, made.FromDisk, made.FromSnapshot)
	}
	return made, nil
}

// plan completes m with type, size and source.
func (p *Provider) plan(ctx context.Context, m *making, spec provider.DiskSpec) (err error) {
	kind, id := kindSnapshot, spec.FromSnapshot
	if spec.FromDisk != "" {
		kind, id = kindDisk, spec.FromDisk
	}
	least := spec.Bytes
	m.from, m.diskType, m.size = id, spec.Type, least>>30
	if id != "" {
		from, err := p.look(ctx, kind, id)
		if err != nil {
			return err
		}
		if spec.Bytes != 0 && spec.Bytes < from.bytes() {
			return fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, spec.Bytes, id, from.bytes())
		}
		least = max(least, from.bytes())
	}
	m.size, err = disks.GiB(least, spec.Limit, 1, math.MaxInt64>>30) // what it has at most, the cloud says
	return err
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk")
	v, err := p.look(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	return p.disk(v), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	found, err := p.tagged(ctx, kindDisk, match)
	for _, v := range found {
		list = append(list, *p.disk(v))
	}
	return list, err
}

// tagged returns those that were made here as such and have the tags.
func (p *Provider) tagged(ctx context.Context, kind string, match map[string]string) ([]*volume, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	return p.volumes(ctx, func(v *volume) bool {
		return v.State != stateDeleting && v.keyOf(kind) != "" && provider.HasTags(decodeTags(v.UserTags), match)
	})
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %s", diskID)
	return p.deleteVolume(ctx, kindDisk, diskID)
}

// deleteVolume removes a volume and the clones that were to become it: without it nobody knows of them.
func (p *Provider) deleteVolume(ctx context.Context, kind, id string) error {
	v, err := p.look(ctx, kind, id)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return nil
	case err != nil:
		return err
	case v.keyOf(kind) == "":
		return fmt.Errorf("%w: it was not made here", provider.ErrPermissionDenied)
	}
	clones, err := p.volumes(ctx, func(other *volume) bool { return isClone(other, kind, v.Name) })
	if err != nil {
		return err
	}
	for _, each := range append(clones, v) {
		if err := p.removeVolume(ctx, kind, each.ID); err != nil {
			return err
		}
	}
	return nil
}

// ResizeDisk implements provider.DiskController.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk %s", diskID)
	size, err := disks.GiB(bytes, 0, 1, math.MaxInt64>>30)
	if err != nil {
		return nil, err
	}
	err = p.wait.Until(ctx, func() (bool, error) {
		v, err := p.look(ctx, kindDisk, diskID)
		if err != nil {
			return false, err
		}
		if grown = p.disk(v); grown.Bytes >= bytes {
			return true, nil
		}
		if v.State == stateAvailable || v.State == stateInUse {
			err = p.api.send(ctx, http.MethodPut, "/volumes/"+diskID, map[string]any{"size": size}, nil)
		}
		if failure.HasStatus(err, http.StatusConflict) {
			err = nil
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return grown, nil
}

// CreateSnapshot implements provider.DiskSnapshotter.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, given map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	m := p.newMaking(kindSnapshot, key, given, map[string]string{tagFromDisk: diskID})
	v, err := p.findOrMakeVolume(ctx, m, func() error {
		m.from = diskID
		_, err := p.look(ctx, kindDisk, diskID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if made = snapshot(v); made.DiskID != diskID {
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
	return snapshot(v), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	found, err := p.tagged(ctx, kindSnapshot, match)
	for _, v := range found {
		list = append(list, *snapshot(v))
	}
	return list, err
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) (err error) {
	defer explain(&err, "delete snapshot %s", snapshotID)
	return p.deleteVolume(ctx, kindSnapshot, snapshotID)
}
