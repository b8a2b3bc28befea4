// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// leastGiB are the least sizes of kinds of disks, and maxGiB is the largest of all (CreateDisk, Size). An ESSD has the
// performance level PL1 unless one is asked for.
var leastGiB = map[string]int64{"cloud": 5, "cloud_efficiency": 20, "cloud_ssd": 20, "cloud_essd": 20, "cloud_essd_entry": 10, "cloud_regional_disk_auto": 10}

const maxGiB = 65536

// disk converts a disk to the contract's type.
func disk(v *volume) *provider.Disk {
	d := &provider.Disk{
		ID: v.id, Key: v.keyOf(kindDisk), Bytes: v.bytes, Type: v.kind, Zone: v.zone, FromSnapshot: v.snapshot, FromDisk: v.tags[tagFrom],
		InstanceID: v.instance, Tags: shown(v.tags), Created: v.created,
	}
	if d.FromDisk != "" {
		d.FromSnapshot = "" // the one by which it was copied
	}
	return d
}

func snapshot(v *volume) *provider.Snapshot {
	return &provider.Snapshot{ID: v.id, Key: v.keyOf(kindSnapshot), DiskID: v.disk, Bytes: v.bytes, Ready: v.ready, Tags: shown(v.tags), Created: v.created}
}

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	if err := spec.Check(); err != nil {
		return nil, err
	}
	m, err := p.newMaking(kindDisk, key, spec.Tags)
	if err != nil {
		return nil, err
	}
	v, err := p.oldestVolume(ctx, m)
	if v == nil && err == nil {
		v, err = p.makeDisk(ctx, m, spec)
	}
	if err == nil && spec.FromDisk != "" {
		err = p.dropClone(ctx, key, spec.Tags)
	}
	if err == nil {
		v, err = p.settledDisk(ctx, v.id)
	}
	if err != nil {
		return nil, err
	}
	if made = disk(v); !spec.Fits(made) {
		return nil, fmt.Errorf("%w: disk %s of the same key has %d bytes, type %s, zone %s, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, v.id, made.Bytes, made.Type, made.Zone, made.FromDisk, made.FromSnapshot)
	}
	return made, nil
}

// makeDisk makes a disk, maybe of a snapshot. Of a disk it takes one first.
func (p *Provider) makeDisk(ctx context.Context, m *making, spec provider.DiskSpec) (*volume, error) {
	request := &ecs.CreateDiskRequest{RegionId: new(p.cfg.Region), DiskCategory: new(cmp.Or(spec.Type, p.cfg.DiskCategory)), DiskName: new("outrigger-" + m.key)}
	var source *volume
	var err error
	from := spec.FromSnapshot
	switch {
	case from != "":
		source, err = p.getVolume(ctx, kindSnapshot, from)
	case spec.FromDisk != "":
		source, err = p.getVolume(ctx, kindDisk, spec.FromDisk)
	}
	if err != nil {
		return nil, err
	}
	zone := spec.Zone
	if source != nil {
		zone = cmp.Or(zone, source.zone)
		if spec.Bytes == 0 {
			spec.Bytes = source.bytes
		} else if spec.Bytes < source.bytes {
			return nil, fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, spec.Bytes, source.id, source.bytes)
		}
	}
	size, err := disks.GiB(spec.Bytes, spec.Limit, leastGiB[*request.DiskCategory], maxGiB)
	if err != nil {
		return nil, err
	}
	if zone == "" {
		at, err := p.describeVSwitch(ctx, p.cfg.VSwitchIDs[0])
		if err != nil {
			return nil, err
		}
		zone = at.zone
	}
	if spec.FromDisk != "" {
		m.tags[tagFrom] = spec.FromDisk
		if from, err = p.clone(ctx, m.key, source, spec.Tags); err != nil {
			return nil, err
		}
	}
	request.Size, request.ZoneId = new(int32(size)), new(zone)
	if from != "" {
		request.SnapshotId = new(from)
	}
	if p.cfg.DiskKey != "" {
		request.Encrypted, request.KMSKeyId = new(true), new(p.cfg.DiskKey)
	}
	m.request = func(token string, all map[string]string) (string, error) {
		return p.createDisk(ctx, request, token, all)
	}
	return p.findOrMakeVolume(ctx, m)
}

func (p *Provider) createDisk(ctx context.Context, request *ecs.CreateDiskRequest, token string, all map[string]string) (string, error) {
	request.ClientToken = new(token)
	request.Tag = tags.List(all, func(key, value string) *ecs.CreateDiskRequestTag {
		return &ecs.CreateDiskRequestTag{Key: new(key), Value: new(value)}
	})
	response, err := call(ctx, p.api, "ecs:CreateDisk", p.api.ecs().CreateDiskWithContext, request)
	switch {
	case failure.HasCode(err, codeMismatch):
		return "", err
	case errors.Is(err, provider.ErrInvalidArgument), errors.Is(err, provider.ErrNotFound) && !failure.HasCode(err, codeNoSnapshot):
		return "", fmt.Errorf("%w: type %q, zone %q, %d GiB: %w", provider.ErrInvalidArgument, *request.DiskCategory, *request.ZoneId, *request.Size, err)
	case err != nil:
		return "", err
	case response.Body == nil || dara.StringValue(response.Body.DiskId) == "":
		return "", fmt.Errorf("ecs:CreateDisk: %w: the answer does not hold a disk id", provider.ErrUnknown)
	}
	return *response.Body.DiskId, nil
}

// clone returns the snapshot of which a copy of a disk is made: of one that was never attached, and holds nothing but what it
// was made of, that.
func (p *Provider) clone(ctx context.Context, key string, source *volume, given map[string]string) (string, error) {
	m, err := p.newMaking(kindClone, key, given)
	if err != nil {
		return "", err
	}
	m.request = p.snapshotRequest(ctx, key, source.id)
	v, err := p.findOrMakeVolume(ctx, m)
	if failure.HasCode(err, codeNeverAttached, codeNeverUsed) {
		return source.snapshot, nil
	}
	if err == nil && v.disk != source.id {
		return "", fmt.Errorf("%w: snapshot %s of the same key is of disk %s, and not of %s", provider.ErrAlreadyExists, v.id, v.disk, source.id)
	}
	for t := p.pace.ticker(); err == nil && !v.ready; {
		if err = t.Wait(ctx); err == nil {
			v, err = p.oldestVolume(ctx, m)
		}
		if err == nil && v == nil {
			err = fmt.Errorf("%w: the snapshot by which disk %s is copied is gone", provider.ErrUnavailable, source.id)
		}
	}
	if err != nil {
		return "", failure.Classify(err)
	}
	return v.id, nil
}

// dropClone removes the snapshot by which a disk was copied.
func (p *Provider) dropClone(ctx context.Context, key string, given map[string]string) error {
	m, err := p.newMaking(kindClone, key, given)
	if err != nil {
		return err
	}
	v, err := p.oldestVolume(ctx, m)
	if err != nil || v == nil {
		return err
	}
	return p.removeVolume(ctx, kindClone, v.id)
}

// settledDisk returns a disk when the cloud is done with it.
func (p *Provider) settledDisk(ctx context.Context, id string) (*volume, error) {
	for t := p.pace.ticker(); ; {
		v, err := p.getVolume(ctx, kindDisk, id)
		if err != nil || v.status == diskAvailable || v.status == diskInUse {
			return v, err
		}
		if err := t.Wait(ctx); err != nil {
			return nil, failure.Classify(err)
		}
	}
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk")
	v, err := p.getVolume(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	return disk(v), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	found, err := p.volumesBy(ctx, kindDisk, match)
	for _, v := range found {
		list = append(list, *disk(v))
	}
	return list, err
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %s", diskID)
	return p.deleteVolume(ctx, kindDisk, diskID)
}

func (p *Provider) deleteVolume(ctx context.Context, kind, id string) error {
	v, err := p.getVolume(ctx, kind, id)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return nil
	case err != nil:
		return err
	case v.keyOf(kind) == "":
		return fmt.Errorf("%w: it was not made here", provider.ErrPermissionDenied)
	case v.instance != "":
		return fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.instance)
	}
	return p.removeVolume(ctx, kind, id)
}

// CreateSnapshot implements provider.DiskSnapshotter: what is written after the call is not in it.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, given map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	m, err := p.newMaking(kindSnapshot, key, given)
	if err != nil {
		return nil, err
	}
	v, err := p.oldestVolume(ctx, m)
	if v == nil && err == nil {
		if _, err = p.getVolume(ctx, kindDisk, diskID); err != nil {
			return nil, err
		}
		m.request = p.snapshotRequest(ctx, key, diskID)
		v, err = p.findOrMakeVolume(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	if made = snapshot(v); made.DiskID != diskID {
		return nil, fmt.Errorf("%w: snapshot %s of the same key is of disk %s", provider.ErrAlreadyExists, v.id, made.DiskID)
	}
	return made, nil
}

// snapshotRequest waits while the cloud takes another snapshot of the disk.
func (p *Provider) snapshotRequest(ctx context.Context, key, disk string) func(string, map[string]string) (string, error) {
	return func(token string, all map[string]string) (id string, err error) {
		err = p.settled(ctx, func() error {
			response, err := call(ctx, p.api, "ecs:CreateSnapshot", p.api.ecs().CreateSnapshotWithContext, &ecs.CreateSnapshotRequest{
				DiskId: new(disk), SnapshotName: new("outrigger-" + key), ClientToken: new(token),
				Tag: tags.List(all, func(key, value string) *ecs.CreateSnapshotRequestTag {
					return &ecs.CreateSnapshotRequestTag{Key: new(key), Value: new(value)}
				}),
			})
			if err == nil && (response.Body == nil || dara.StringValue(response.Body.SnapshotId) == "") {
				err = fmt.Errorf("ecs:CreateSnapshot: %w: the answer does not hold a snapshot id", provider.ErrUnknown)
			}
			if err == nil {
				id = *response.Body.SnapshotId
			}
			return err
		})
		return id, err
	}
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (found *provider.Snapshot, err error) {
	defer explain(&err, "get snapshot")
	v, err := p.getVolume(ctx, kindSnapshot, snapshotID)
	if err != nil {
		return nil, err
	}
	return snapshot(v), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	found, err := p.volumesBy(ctx, kindSnapshot, match)
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
