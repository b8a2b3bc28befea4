// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
)

// The profiles of disks that name none: the first storage generation is every account's, the second has only this one (page
// "Block Storage for VPC profiles"). A snapshot's volumes are of its generation.
const (
	firstGeneration  = "general-purpose"
	secondGeneration = "sdp"
)

// disk converts a volume to the contract's type.
func disk(v *volume) *provider.Disk {
	tags := tagsOf(v.UserTags)
	return &provider.Disk{
		ID: v.ID, Key: keyOf(kindDisk, tags), Bytes: v.bytes(), Type: v.Profile.Name, Zone: v.Zone.Name, FromDisk: tags[tagFromDisk],
		FromSnapshot: tags[tagFromSnapshot], InstanceID: v.instance(), Tags: shown(tags), Created: time.Time(value(v.CreatedAt)).UTC(),
	}
}

func snapshot(v *volume) *provider.Snapshot {
	tags := tagsOf(v.UserTags)
	return &provider.Snapshot{
		ID: v.ID, Key: keyOf(kindSnapshot, tags), DiskID: v.Source.ID, Bytes: v.bytes(), Ready: v.status() == statusStable, Tags: shown(tags),
		Created: time.Time(value(v.CreatedAt)).UTC(),
	}
}

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	if err := spec.Check(); err != nil {
		return nil, err
	}
	from := map[string]string{}
	if spec.FromDisk != "" {
		from[tagFromDisk] = spec.FromDisk
	}
	if spec.FromSnapshot != "" {
		from[tagFromSnapshot] = spec.FromSnapshot
	}
	m, err := p.newMaking(kindDisk, key, spec.Tags, from)
	if err != nil {
		return nil, err
	}
	v, err := p.findOrMakeVolume(ctx, m, func() error { return p.makeDisk(ctx, m, spec) })
	if err == nil && spec.FromDisk != "" {
		if err = p.dropClone(ctx, spec.Tags, key); busy(err) {
			err = nil // the cloud still copies: DeleteDisk drops it
		}
	}
	if err != nil {
		return nil, err
	}
	if made = disk(v); !spec.Fits(made) {
		return nil, fmt.Errorf("%w: disk %s of the same key has %d bytes, type %s, zone %s, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, made.ID, made.Bytes, made.Type, made.Zone, made.FromDisk, made.FromSnapshot)
	}
	return made, nil
}

func (p *Provider) makeDisk(ctx context.Context, m *making, spec provider.DiskSpec) error {
	profile, zone, least, err := p.sourceOf(ctx, &spec)
	if err != nil {
		return err
	}
	profile, zone = cmp.Or(spec.Type, profile), cmp.Or(spec.Zone, zone)
	size, err := p.capacity(ctx, profile, max(spec.Bytes, least), spec.Limit)
	if err != nil {
		return err
	}
	home, err := p.home(ctx)
	if err == nil && spec.FromDisk != "" {
		spec.FromSnapshot, err = p.clone(ctx, m.key, spec.FromDisk, spec.Tags)
	}
	if err != nil {
		return err
	}
	proto := &vpcv1.VolumePrototype{
		Name: &m.name, UserTags: m.userTags, Capacity: &size, Zone: &vpcv1.ZoneIdentityByName{Name: &zone}, Profile: &vpcv1.VolumeProfileIdentityByName{Name: &profile},
	}
	if home.resourceGroup != "" {
		proto.ResourceGroup = &vpcv1.ResourceGroupIdentityByID{ID: &home.resourceGroup}
	}
	if p.cfg.DiskKey != "" {
		proto.EncryptionKey = &vpcv1.EncryptionKeyIdentityByCRN{CRN: &p.cfg.DiskKey}
	}
	if spec.FromSnapshot != "" {
		proto.SourceSnapshot = &vpcv1.SnapshotIdentityByID{ID: &spec.FromSnapshot}
	}
	_, err = ask(ctx, p.api.CreateVolumeWithContext, vpcv1.CreateVolumeOptions{VolumePrototype: proto})
	if errors.Is(err, provider.ErrNotFound) && spec.FromDisk != "" {
		if _, gone := p.look(ctx, kindClone, spec.FromSnapshot); errors.Is(gone, provider.ErrNotFound) {
			return errCopied
		}
	}
	if errors.Is(err, provider.ErrInvalidArgument) || errors.Is(err, provider.ErrNotFound) {
		return fmt.Errorf("%w: type %q, zone %q, %d GiB: %w", provider.ErrInvalidArgument, profile, zone, size, err)
	}
	return err
}

// sourceOf returns the profile and the zone that a disk has for want of another, and how large it is at least.
func (p *Provider) sourceOf(ctx context.Context, spec *provider.DiskSpec) (profile, zone string, bytes int64, err error) {
	profile, zone = firstGeneration, p.cfg.Zones[0]
	var from *volume
	switch {
	case spec.FromSnapshot != "":
		if from, err = p.settled(ctx, kindSnapshot, spec.FromSnapshot); from.Generation == 2 {
			profile = secondGeneration
		}
	case spec.FromDisk != "":
		from, err = p.look(ctx, kindDisk, spec.FromDisk)
		profile, zone = from.Profile.Name, from.Zone.Name
	default:
		return profile, zone, 0, nil
	}
	if err == nil && spec.Bytes != 0 && spec.Bytes < from.bytes() {
		err = fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, spec.Bytes, from.ID, from.bytes())
	}
	return profile, zone, from.bytes(), err
}

// capacity returns the size of a volume, in GiB, as its profile permits.
func (p *Provider) capacity(ctx context.Context, profile string, bytes, limit int64) (int64, error) {
	known, err := ask(ctx, p.api.GetVolumeProfileWithContext, vpcv1.GetVolumeProfileOptions{Name: &profile})
	if errors.Is(err, provider.ErrNotFound) || errors.Is(err, provider.ErrInvalidArgument) {
		return 0, fmt.Errorf("%w: type %q: there is no such profile of volumes, or this account may not use it: %w", provider.ErrInvalidArgument, profile, err)
	}
	if err != nil {
		return 0, err
	}
	limits, ok := known.Capacity.(*vpcv1.VolumeProfileCapacity)
	if !ok || limits.Max == nil {
		return 0, fmt.Errorf("%w: type %q: the cloud does not say which sizes it can have", provider.ErrInvalidArgument, profile)
	}
	return disks.GiB(bytes, limit, value(limits.Min), *limits.Max)
}

// snap returns a snapshot without what is written later.
func (p *Provider) snap(ctx context.Context, kind, key, diskID string, given map[string]string) (*volume, error) {
	m, err := p.newMaking(kind, key, given, nil)
	if err != nil {
		return nil, err
	}
	return p.findOrMakeVolume(ctx, m, func() error {
		v, err := p.look(ctx, kindDisk, diskID)
		if err == nil {
			err = v.asleep("copied")
		}
		if err != nil {
			return err
		}
		home, err := p.home(ctx)
		if err != nil {
			return err
		}
		proto := &vpcv1.SnapshotPrototypeSnapshotBySourceVolume{Name: &m.name, UserTags: m.userTags, SourceVolume: &vpcv1.VolumeIdentityByID{ID: &v.ID}}
		if home.resourceGroup != "" {
			proto.ResourceGroup = &vpcv1.ResourceGroupIdentityByID{ID: &home.resourceGroup}
		}
		_, err = ask(ctx, p.api.CreateSnapshotWithContext, vpcv1.CreateSnapshotOptions{SnapshotPrototype: proto})
		return err
	})
}

// errCopied says that another call with the key has made the disk, and has removed what it was copied by.
var errCopied = errors.New("another call has made the copy")

// clone returns a snapshot by which a disk is copied.
func (p *Provider) clone(ctx context.Context, key, diskID string, given map[string]string) (string, error) {
	for {
		v, err := p.snap(ctx, kindClone, key, diskID, given)
		if err == nil && v.Source.ID == diskID {
			if v, err = p.settled(ctx, kindClone, v.ID); errors.Is(err, provider.ErrNotFound) {
				err = errCopied
			}
		} else if err == nil { // the key had another source, and its disk is gone or was never made
			if err = p.remove(ctx, kindClone, v.ID); err == nil {
				continue
			}
		}
		if err != nil {
			return "", err
		}
		return v.ID, nil
	}
}

// dropClone removes the snapshot by which a disk was copied.
func (p *Provider) dropClone(ctx context.Context, given map[string]string, key string) error {
	v, err := p.volumeNamed(ctx, kindClone, volumeName(kindClone, given[provider.TagCluster], key))
	if v == nil || err != nil {
		return err
	}
	return p.remove(ctx, kindClone, v.ID)
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk")
	v, err := p.look(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	return disk(v), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	found, err := p.tagged(ctx, kindDisk, match)
	for i := range found {
		list = append(list, *disk(&found[i]))
	}
	return list, err
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %s", diskID)
	return p.deleteVolume(ctx, kindDisk, diskID)
}

func (p *Provider) deleteVolume(ctx context.Context, kind, id string) error {
	v, err := p.look(ctx, kind, id)
	if errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	tags := tagsOf(v.UserTags)
	switch {
	case keyOf(kind, tags) == "":
		return fmt.Errorf("%w: it was not made here", provider.ErrPermissionDenied)
	case tags[tagFromDisk] == "" || v.instance() != "":
		return p.remove(ctx, kind, id)
	}
	// First, since without the disk nobody knows of it; but what the cloud still copies goes only after the copy.
	early := p.dropClone(ctx, tags, keyOf(kind, tags))
	if early != nil && !busy(early) {
		return early
	}
	if err := p.remove(ctx, kind, id); err != nil || early == nil {
		return err
	}
	return p.dropClone(ctx, tags, keyOf(kind, tags))
}

// CreateSnapshot implements provider.DiskSnapshotter.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, given map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	v, err := p.snap(ctx, kindSnapshot, key, diskID, given)
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
	for i := range found {
		list = append(list, *snapshot(&found[i]))
	}
	return list, err
}

// DeleteSnapshot implements provider.DiskSnapshotter. One of which the cloud still fills a disk is ErrUnavailable.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) (err error) {
	defer explain(&err, "delete snapshot %s", snapshotID)
	return p.deleteVolume(ctx, kindSnapshot, snapshotID)
}
