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

// disk converts a volume to the contract's type. Capacities are in GiB (page "FAQs for Block Storage for VPC").
func disk(v *vpcv1.Volume) *provider.Disk {
	tags := tagsOf(v.UserTags)
	d := &provider.Disk{
		ID: value(v.ID), Key: keyOf(kindDisk, tags), Bytes: value(v.Capacity) << 30, Type: profileOf(v), Zone: zoneOf(v.Zone),
		FromDisk: tags[tagFromDisk], FromSnapshot: tags[tagFromSnapshot], Tags: shown(tags),
	}
	if owner := ownerOf(v); owner != nil {
		d.InstanceID = value(owner.ID)
	}
	if v.CreatedAt != nil {
		d.Created = time.Time(*v.CreatedAt).UTC()
	}
	return d
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
	var v *vpcv1.Volume
	err = p.wait.Until(ctx, func() (bool, error) {
		v, err = p.volumeNamed(ctx, m.name)
		if v == nil && err == nil {
			v, err = p.makeDisk(ctx, m, spec)
		}
		if v == nil || err != nil {
			return false, err
		}
		v, err = p.settledDisk(ctx, value(v.ID))
		return v != nil, err
	})
	if err == nil && spec.FromDisk != "" {
		if err = p.dropClone(ctx, spec.Tags[provider.TagCluster], key); busy(err) {
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

// makeDisk returns nil when the name is taken, by one that may be about to go.
func (p *Provider) makeDisk(ctx context.Context, m *making, spec provider.DiskSpec) (*vpcv1.Volume, error) {
	profile, zone, least, err := p.sourceOf(ctx, &spec)
	if err != nil {
		return nil, err
	}
	profile, zone = cmp.Or(spec.Type, profile), cmp.Or(spec.Zone, zone)
	size, err := p.capacity(ctx, profile, max(spec.Bytes, least), spec.Limit)
	if err != nil {
		return nil, err
	}
	home, err := p.home(ctx)
	if err != nil {
		return nil, err
	}
	if spec.FromDisk != "" {
		if spec.FromSnapshot, err = p.clone(ctx, m.key, spec.FromDisk, spec.Tags); err != nil {
			return nil, err
		}
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
	v, err := ask(ctx, p.api.CreateVolumeWithContext, vpcv1.CreateVolumeOptions{VolumePrototype: proto})
	switch {
	case isTaken(err):
		return nil, nil
	case errors.Is(err, provider.ErrInvalidArgument), errors.Is(err, provider.ErrNotFound):
		return nil, fmt.Errorf("%w: type %q, zone %q, %d GiB: %w", provider.ErrInvalidArgument, profile, zone, size, err)
	}
	return v, err
}

// sourceOf returns the profile and the zone that a disk has for want of another, and how large it is at least.
func (p *Provider) sourceOf(ctx context.Context, spec *provider.DiskSpec) (profile, zone string, bytes int64, err error) {
	profile, zone = firstGeneration, p.cfg.Zones[0]
	switch {
	case spec.FromSnapshot != "":
		s, err := p.settledSnapshot(ctx, spec.FromSnapshot)
		if err == nil && s == nil {
			err = p.absentAs(kindSnapshot, spec.FromSnapshot, nil)
		}
		if err != nil {
			return "", "", 0, err
		}
		if value(s.StorageGeneration) == 2 {
			profile = secondGeneration
		}
		bytes = value(s.MinimumCapacity) << 30
	case spec.FromDisk != "":
		v, err := p.getVolume(ctx, spec.FromDisk)
		if err != nil {
			return "", "", 0, err
		}
		profile, zone, bytes = profileOf(v), zoneOf(v.Zone), value(v.Capacity)<<30
	}
	if spec.Bytes != 0 && spec.Bytes < bytes {
		err = fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, spec.Bytes, cmp.Or(spec.FromSnapshot, spec.FromDisk), bytes)
	}
	return profile, zone, bytes, err
}

// capacity returns the size of a volume, in GiB, as its profile permits.
func (p *Provider) capacity(ctx context.Context, profile string, bytes, limit int64) (int64, error) {
	known, err := ask(ctx, p.api.GetVolumeProfileWithContext, vpcv1.GetVolumeProfileOptions{Name: &profile})
	if errors.Is(err, provider.ErrNotFound) || errors.Is(err, provider.ErrInvalidArgument) {
		return 0, fmt.Errorf("%w: type %q: volumes have no such profile, or this account may not use it: %w", provider.ErrInvalidArgument, profile, err)
	}
	if err != nil {
		return 0, err
	}
	limits, ok := known.Capacity.(*vpcv1.VolumeProfileCapacity)
	if !ok || limits.Max == nil {
		return 0, fmt.Errorf("%w: type %q: the cloud says no sizes of this profile", provider.ErrInvalidArgument, profile)
	}
	return disks.GiB(bytes, limit, value(limits.Min), *limits.Max)
}

// settledDisk returns a disk when the cloud is done with it, and nil when there is none. One that could not be made is
// deleted: it has never held anything (page "Monitoring Block Storage volumes").
func (p *Provider) settledDisk(ctx context.Context, id string) (v *vpcv1.Volume, err error) {
	err = p.wait.Until(ctx, func() (bool, error) {
		v, err = p.getVolume(ctx, id)
		if errors.Is(err, provider.ErrNotFound) {
			v, err = nil, nil
			return true, nil
		}
		if err != nil {
			return false, err
		}
		switch value(v.Status) {
		case statusAvailable:
			return true, nil
		case statusFailed:
			return false, errors.Join(p.failedVolume(v), p.removeDisk(ctx, id))
		case vpcv1.VolumeStatusUnusableConst:
			return false, p.failedVolume(v)
		}
		return false, nil
	})
	return v, err
}

func (p *Provider) failedVolume(v *vpcv1.Volume) error {
	reason := vpcv1.VolumeStatusReason{}
	if len(v.StatusReasons) > 0 {
		reason = v.StatusReasons[0]
	}
	return fmt.Errorf("volume %s is %s: %w", value(v.ID), value(v.Status), failed(reason.Code, reason.Message, reasons))
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk")
	v, err := p.getVolume(ctx, diskID)
	if err != nil {
		return nil, err
	}
	return disk(v), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	err = listed(match, kindDisk, func(tag string, start *string) (*vpcv1.VolumeCollection, error) {
		return ask(ctx, p.api.ListVolumesWithContext, vpcv1.ListVolumesOptions{Tag: &tag, Limit: new(pageSize), Start: start})
	}, func(page *vpcv1.VolumeCollection) []vpcv1.Volume { return page.Volumes },
		func(v *vpcv1.Volume) []string { return v.UserTags }, func(v *vpcv1.Volume) { list = append(list, *disk(v)) })
	return list, err
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %s", diskID)
	v, err := p.getVolume(ctx, diskID)
	if errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	d := disk(v)
	switch {
	case d.Key == "":
		return fmt.Errorf("%w: it was not made here", provider.ErrPermissionDenied)
	case d.InstanceID != "":
		return fmt.Errorf("%w: instance %s has it", provider.ErrInUse, d.InstanceID)
	case d.FromDisk == "":
		return p.removeDisk(ctx, diskID)
	}
	// First, since without the disk nobody knows of it; but what the cloud still copies goes only after the copy.
	early := p.dropClone(ctx, d.Tags[provider.TagCluster], d.Key)
	if early != nil && !busy(early) {
		return early
	}
	if err := p.removeDisk(ctx, diskID); err != nil || early == nil {
		return err
	}
	return p.dropClone(ctx, d.Tags[provider.TagCluster], d.Key)
}

// removeDisk returns when there is no such volume. It waits while the cloud takes a snapshot of it.
func (p *Provider) removeDisk(ctx context.Context, id string) error {
	return p.wait.Until(ctx, func() (bool, error) {
		v, err := p.getVolume(ctx, id)
		switch {
		case errors.Is(err, provider.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		case ownerOf(v) != nil:
			return false, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, value(ownerOf(v).ID))
		case value(v.Status) == vpcv1.VolumeStatusPendingDeletionConst:
			return false, nil
		}
		err = order(ctx, p.api.DeleteVolumeWithContext, vpcv1.DeleteVolumeOptions{ID: &id})
		if busy(err) || errors.Is(err, provider.ErrNotFound) {
			err = nil
		}
		return false, err
	})
}
