// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// A disk is a volume of Cinder whose name is a hash of the key. So is a snapshot: Cinder
// deletes no volume that has snapshots of its own, and ours outlive their disk.

// kindDisk and kindSnapshot begin the names of volumes.
const (
	kindDisk     = "outrigger-disk-"
	kindSnapshot = "outrigger-snapshot-"
)

func volumeName(kind, key string) string {
	return kind + uuid.NewSHA1(namespace, []byte(kind+key)).String()
}

// Keys of a volume's metadata beside the tags.
const (
	metaFromDisk     = "outrigger-from-disk"
	metaFromSnapshot = "outrigger-from-snapshot"
	metaDiskName     = "outrigger-disk-name"
)

// Statuses of a volume (Block Storage API v3, "Volumes").
const (
	volumeAvailable = "available"
	volumeInUse     = "in-use"
	volumeError     = "error"
)

// maxGiB is the largest size that Cinder takes (cinder/db/constants.py, MAX_INT).
const maxGiB = 1<<31 - 1

// keyOf returns the key of a volume of that kind that was made here; empty for others'.
func keyOf(kind string, v *volumes.Volume) string {
	if key := v.Metadata[provider.TagKey]; key != "" && v.Name == volumeName(kind, key) {
		return key
	}
	return ""
}

func diskTags(v *volumes.Volume) map[string]string {
	own := tags.Merge(v.Metadata)
	for _, key := range []string{metaFromDisk, metaFromSnapshot, metaDiskName} {
		delete(own, key)
	}
	return own
}

// disk converts a volume to the contract's type, without the instance.
func disk(v *volumes.Volume) *provider.Disk {
	return &provider.Disk{
		ID: v.ID, Key: keyOf(kindDisk, v), Bytes: int64(v.Size) << 30, Type: v.VolumeType, Zone: v.AvailabilityZone,
		FromSnapshot: v.Metadata[metaFromSnapshot], FromDisk: v.Metadata[metaFromDisk], Tags: diskTags(v), Created: v.CreatedAt,
	}
}

func snapshot(v *volumes.Volume) *provider.Snapshot {
	return &provider.Snapshot{
		ID: v.ID, Key: keyOf(kindSnapshot, v), DiskID: v.Metadata[metaFromDisk], Bytes: int64(v.Size) << 30,
		Ready: v.Status == volumeAvailable, Tags: diskTags(v), Created: v.CreatedAt,
	}
}

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	v, err := p.makeVolume(ctx, kindDisk, key, spec)
	if err != nil {
		return nil, err
	}
	return disk(v), nil
}

// makeVolume returns the volume of a key, which it makes if there is none, when it can be
// attached. It goes on when ctx ends: nobody else would learn of a volume that comes late.
func (p *Provider) makeVolume(ctx context.Context, kind, key string, spec provider.DiskSpec) (*volumes.Volume, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	unlock, err := p.locks.Take(ctx, volumeName(kind, key))
	if err != nil {
		return nil, err
	}
	return lifetime.Outlive(ctx, func() (*volumes.Volume, error) {
		defer unlock()
		ctx, end := p.life.Begin(context.WithoutCancel(ctx))
		defer end()
		ctx, cancel := context.WithTimeout(ctx, volumeWait)
		defer cancel()
		return p.findOrMakeVolume(ctx, kind, key, spec)
	})
}

// volumeWait is how long Cinder may take to make a volume, which may be a copy.
const volumeWait = time.Hour

func (p *Provider) findOrMakeVolume(ctx context.Context, kind, key string, spec provider.DiskSpec) (*volumes.Volume, error) {
	c, err := p.conn.block(ctx)
	if err != nil {
		return nil, err
	}
	name := volumeName(kind, key)
	v, err := ownVolume(ctx, c, name)
	if err != nil {
		return nil, err
	}
	if v == nil {
		opts, err := p.volumeOf(ctx, c, kind, key, spec)
		if err != nil {
			return nil, err
		}
		made, err := volumes.Create(ctx, c, opts, nil).Extract()
		if err != nil {
			return nil, refusedVolume(err, spec)
		}
		// Another process may have made one meanwhile: Cinder does not keep names apart.
		if v, err = ownVolume(ctx, c, name); err != nil {
			return nil, err
		}
		if v != nil && v.ID != made.ID {
			if err := p.removeVolume(ctx, c, made); err != nil {
				return nil, err
			}
		}
		v = cmp.Or(v, made)
	}
	if v, err = p.settled(ctx, c, v); err != nil {
		return nil, err
	}
	if v.Status != volumeAvailable && v.Status != volumeInUse {
		// One that could not be made never had content. Others may have: what could not grow is error_extending.
		if v.Status == volumeError {
			err = p.removeVolume(ctx, c, v)
		}
		return nil, errors.Join(fmt.Errorf("%w: volume %s has ended in status %s: `openstack volume message list` may say why", provider.ErrUnavailable, v.ID, v.Status), err)
	}
	if !spec.Fits(disk(v)) {
		return nil, fmt.Errorf("%w: volume %s of the same key has %d GiB, type %s, zone %s, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, v.ID, v.Size, v.VolumeType, v.AvailabilityZone, v.Metadata[metaFromDisk], v.Metadata[metaFromSnapshot])
	}
	return v, nil
}

// volumeOf returns what to ask Cinder for.
func (p *Provider) volumeOf(ctx context.Context, c *gophercloud.ServiceClient, kind, key string, spec provider.DiskSpec) (*volumes.CreateOpts, error) {
	opts := &volumes.CreateOpts{Name: volumeName(kind, key), AvailabilityZone: spec.Zone, VolumeType: spec.Type, SourceVolID: cmp.Or(spec.FromDisk, spec.FromSnapshot)}
	opts.Metadata = tags.Merge(spec.Tags, map[string]string{provider.TagKey: key})
	for key, value := range map[string]string{metaDiskName: spec.Name, metaFromDisk: spec.FromDisk, metaFromSnapshot: spec.FromSnapshot} {
		if value != "" {
			opts.Metadata[key] = string([]rune(value)[:min(len([]rune(value)), maxMetadata)])
		}
	}
	for key, value := range opts.Metadata {
		if err := checkMetadata(key, value); err != nil {
			return nil, err
		}
	}
	bytes := spec.Bytes
	if opts.SourceVolID != "" {
		of := kindDisk
		if spec.FromSnapshot != "" {
			of = kindSnapshot
		}
		source, err := getVolume(ctx, c, of, opts.SourceVolID)
		if err != nil {
			return nil, err
		}
		if size := int64(source.Size) << 30; bytes == 0 {
			bytes = size
		} else if bytes < size {
			return nil, fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, bytes, source.ID, size)
		}
	}
	size, err := disks.GiB(bytes, spec.Limit, 1, maxGiB)
	opts.Size = int(size)
	return opts, err
}

// refusedVolume gives a refusal its class: a type that is not there is a 404, as the
// source would be, which has been looked at before.
func refusedVolume(err error, spec provider.DiskSpec) error {
	if spec.Type != "" && status(err, http.StatusNotFound) {
		return fmt.Errorf("%w: type %q: %w", provider.ErrInvalidArgument, spec.Type, err)
	}
	if spec.Zone != "" && status(err, http.StatusBadRequest) {
		return fmt.Errorf("%w: zone %q: %w", provider.ErrInvalidArgument, spec.Zone, err)
	}
	return err
}

// ownVolume returns the volume of a name: the oldest, if several processes have made one
// at the same time.
func ownVolume(ctx context.Context, c *gophercloud.ServiceClient, name string) (*volumes.Volume, error) {
	list, err := all(ctx, volumes.List(c, volumes.ListOpts{Name: name}), volumes.ExtractVolumes)
	list = slices.DeleteFunc(list, func(v volumes.Volume) bool {
		return v.Name != name || v.Status == "deleting" || keyOf(kindDisk, &v) == "" && keyOf(kindSnapshot, &v) == ""
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	oldest := slices.MinFunc(list, func(a, b volumes.Volume) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return &oldest, nil
}

// settled waits until Cinder has finished what it does with a volume.
func (p *Provider) settled(ctx context.Context, c *gophercloud.ServiceClient, v *volumes.Volume) (*volumes.Volume, error) {
	err := p.pace.Until(ctx, func() (bool, error) {
		if v.Status == volumeAvailable || v.Status == volumeInUse || strings.HasPrefix(v.Status, "error") {
			return true, nil
		}
		now, err := volumes.Get(ctx, c, v.ID).Extract()
		if err == nil {
			v = now
		}
		return false, err
	})
	return v, err
}

// getVolume returns ErrNotFound for what is not of the kind. Others' volumes are disks.
func getVolume(ctx context.Context, c *gophercloud.ServiceClient, kind, id string) (*volumes.Volume, error) {
	if !names.IsUUID(id) {
		return nil, fmt.Errorf("%w: no volume %q: ids are UUIDs", provider.ErrNotFound, id)
	}
	v, err := volumes.Get(ctx, c, id).Extract()
	if err == nil && keyOf(kindSnapshot, v) != "" != (kind == kindSnapshot) {
		return nil, fmt.Errorf("%w: volume %s is not a %s of the contract", provider.ErrNotFound, id, strings.Trim(strings.TrimPrefix(kind, "outrigger"), "-"))
	}
	return v, err
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk %s", diskID)
	c, err := p.conn.block(ctx)
	if err != nil {
		return nil, err
	}
	v, err := getVolume(ctx, c, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	return p.withInstance(ctx, v)
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	found, err := p.matching(ctx, kindDisk, match)
	for i := range found {
		d, err := p.withInstance(ctx, &found[i])
		if err != nil {
			return nil, err
		}
		list = append(list, *d)
	}
	return list, err
}

// matching returns the volumes of a kind whose tags include all of match.
func (p *Provider) matching(ctx context.Context, kind string, match map[string]string) ([]volumes.Volume, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	c, err := p.conn.block(ctx)
	if err != nil {
		return nil, err
	}
	list, err := all(ctx, volumes.List(c, volumes.ListOpts{Metadata: match}), volumes.ExtractVolumes)
	return slices.DeleteFunc(list, func(v volumes.Volume) bool {
		return keyOf(kind, &v) == "" || v.Status == "deleting" || !provider.HasTags(v.Metadata, match)
	}), err
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %s", diskID)
	return p.deleteVolume(ctx, kindDisk, diskID)
}

func (p *Provider) deleteVolume(ctx context.Context, kind, id string) error {
	c, err := p.conn.block(ctx)
	if err != nil {
		return err
	}
	v, err := getVolume(ctx, c, kind, id)
	switch {
	case errors.Is(err, provider.ErrNotFound) || status(err, http.StatusNotFound):
		return nil
	case err != nil:
		return err
	case keyOf(kind, v) == "":
		return fmt.Errorf("%w: volume %s was not made here", provider.ErrPermissionDenied, id)
	}
	return p.removeVolume(ctx, c, v)
}

// removeVolume returns when the volume is gone. Cinder deletes none that is in use.
func (p *Provider) removeVolume(ctx context.Context, c *gophercloud.ServiceClient, v *volumes.Volume) error {
	return p.pace.Until(ctx, func() (bool, error) {
		now, err := volumes.Get(ctx, c, v.ID).Extract()
		switch {
		case status(err, http.StatusNotFound):
			return true, nil
		case err != nil:
			return true, err
		case len(now.Attachments) > 0:
			return true, fmt.Errorf("%w: server %s has it", provider.ErrInUse, now.Attachments[0].ServerID)
		case now.Status == volumeAvailable, strings.HasPrefix(now.Status, "error"):
			err = volumes.Delete(ctx, c, v.ID, nil).ExtractErr()
		}
		if status(err, http.StatusNotFound) || status(err, http.StatusBadRequest) {
			err = nil // its status has changed
		}
		return false, err
	})
}
