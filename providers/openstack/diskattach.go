// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/volumeattach"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
)

// serialLength is how much of a volume's id a guest reads as serial number: virtio-blk cuts
// it there (VIRTIO 1.2, "Device Operation" of block devices: VIRTIO_BLK_ID_BYTES).
const serialLength = 20

// holders returns the servers that have a volume.
func holders(v *volumes.Volume) (ids []string) {
	for _, a := range v.Attachments {
		ids = append(ids, a.ServerID)
	}
	return ids
}

func heldByOther(v *volumes.Volume, serverID string) bool {
	has := holders(v)
	return len(has) > 0 && !slices.Contains(has, serverID)
}

func inUse(v *volumes.Volume) error {
	return fmt.Errorf("%w: server %s has it", provider.ErrInUse, holders(v)[0])
}

// withInstance returns the disk with the instance that has it: that of the server, or a
// server of others by its own id. A zone of Cinder's that Nova does not have is none to servers:
// where they cannot attach across zones (cross_az_attach), both have the same.
func (p *Provider) withInstance(ctx context.Context, v *volumes.Volume) (*provider.Disk, error) {
	d := disk(v)
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	zones, err := p.zonesOfNova(ctx, c)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(zones, d.Zone) {
		d.Zone = ""
	}
	if len(v.Attachments) == 0 {
		return d, nil
	}
	d.InstanceID = v.Attachments[0].ServerID
	s, err := servers.Get(ctx, c.compute, d.InstanceID).Extract()
	if err == nil {
		d.InstanceID = cmp.Or(s.Metadata[metaID], d.InstanceID)
	} else if status(err, http.StatusNotFound) {
		err = nil // it is being deleted
	}
	return d, err
}

// AttachDisk implements provider.DiskController.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %s to instance %s", diskID, instanceID)
	c, s, err := p.server(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	block, err := p.conn.block(ctx)
	if err != nil {
		return nil, err
	}
	v, err := getVolume(ctx, block, kindDisk, diskID)
	switch {
	case err != nil:
		return nil, err
	case heldByOther(v, s.ID): // first: it does not go by itself, as a server's state does
		return nil, inUse(v)
	case stateOf(s) == provider.StatePending || stateOf(s) == provider.StateDeleting || s.Status == statusError:
		return nil, fmt.Errorf("%w: server %s has the status %s", provider.ErrUnavailable, s.ID, s.Status)
	case v.Multiattach:
		return nil, fmt.Errorf("%w: its type %s is for several servers at a time: take another type", provider.ErrInvalidArgument, v.VolumeType)
	}
	err = p.pace.Until(ctx, func() (bool, error) {
		attached, err := p.attachStep(ctx, c, s.ID, v)
		if err != nil || attached {
			return attached, err
		}
		v, err = volumes.Get(ctx, block, diskID).Extract()
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return &provider.Attachment{Serial: diskID[:serialLength]}, nil
}

// attachStep reports whether the server has the volume, and asks for it when it is free.
func (p *Provider) attachStep(ctx context.Context, c *clients, serverID string, v *volumes.Volume) (bool, error) {
	switch {
	case heldByOther(v, serverID):
		return false, inUse(v)
	case len(holders(v)) > 0:
		return v.Status == volumeInUse, nil
	case v.Status == "attaching" || v.Status == "reserved" || v.Status == "detaching" || v.Status == "creating" || v.Status == "extending":
		return false, nil
	case v.Status != volumeAvailable:
		return false, fmt.Errorf("%w: it has the status %s", provider.ErrUnavailable, v.Status)
	}
	err := volumeattach.Create(ctx, c.compute, serverID, volumeattach.CreateOpts{VolumeID: v.ID}).Err
	if status(err, http.StatusBadRequest) {
		err = fmt.Errorf("%w: %w", badAttachment(err), err)
	}
	return false, err
}

// badAttachment returns the class of a 400 of Nova (nova/api/openstack/compute/volume_attachments.py):
// only its text says what it is about.
func badAttachment(err error) error {
	switch {
	case contains(err, "availability_zone", "availability zone"):
		return provider.ErrInvalidArgument
	case contains(err, "to reserve", "InvalidVolume", "Invalid volume"):
		return provider.ErrInUse // somebody was faster
	}
	return provider.ErrInvalidArgument
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %s from instance %s", diskID, instanceID)
	c, s, err := p.server(ctx, instanceID)
	if errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	block, err := p.conn.block(ctx)
	if err != nil {
		return err
	}
	return p.pace.Until(ctx, func() (bool, error) {
		v, err := getVolume(ctx, block, kindDisk, diskID)
		if errors.Is(err, provider.ErrNotFound) || status(err, http.StatusNotFound) || err == nil && !slices.Contains(holders(v), s.ID) {
			return true, nil
		}
		if err == nil && v.Status == volumeInUse {
			err = volumeattach.Delete(ctx, c.compute, s.ID, diskID).ExtractErr()
		}
		if status(err, http.StatusNotFound) || status(err, http.StatusConflict) {
			err = nil // Nova and Cinder agree in a moment
		}
		return false, err
	})
}

// ResizeDisk implements provider.DiskController. Nova tells a guest that has the disk.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk %s", diskID)
	gib, err := disks.GiB(bytes, 0, 1, maxGiB)
	if err != nil {
		return nil, err
	}
	size := int(gib)
	c, err := p.conn.block(ctx)
	if err != nil {
		return nil, err
	}
	v, err := getVolume(ctx, c, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	err = p.pace.Until(ctx, func() (bool, error) {
		if v, err = p.settled(ctx, c, v); err != nil || v.Size >= size {
			return true, err
		}
		if v.Status != volumeAvailable && v.Status != volumeInUse {
			return true, fmt.Errorf("%w: it has the status %s", provider.ErrUnavailable, v.Status)
		}
		if err := volumes.ExtendSize(ctx, c, v.ID, volumes.ExtendSizeOpts{NewSize: size}).ExtractErr(); err != nil {
			return true, err
		}
		v, err = volumes.Get(ctx, c, v.ID).Extract()
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return p.withInstance(ctx, v)
}

// CreateSnapshot implements provider.DiskSnapshotter: it returns when Cinder has copied the
// disk, which may be in use.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	v, err := p.makeVolume(ctx, kindSnapshot, key, provider.DiskSpec{FromDisk: diskID, Tags: tags})
	if err != nil {
		return nil, err
	}
	return snapshot(v), nil
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (found *provider.Snapshot, err error) {
	defer explain(&err, "get snapshot %s", snapshotID)
	c, err := p.conn.block(ctx)
	if err != nil {
		return nil, err
	}
	v, err := getVolume(ctx, c, kindSnapshot, snapshotID)
	if err != nil {
		return nil, err
	}
	return snapshot(v), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	found, err := p.matching(ctx, kindSnapshot, match)
	for i := range found {
		list = append(list, *snapshot(&found[i]))
	}
	return list, err
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) (err error) {
	defer explain(&err, "delete snapshot %s", snapshotID)
	return p.deleteVolume(ctx, kindSnapshot, snapshotID)
}
