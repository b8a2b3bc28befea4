// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

const (
	// maxDataDisks is how many volumes an instance has besides its boot volume (page "Quotas and service limits").
	maxDataDisks = 12
	// serialLength is where virtio cuts a serial number: a guest reads that much of the id of an attachment's device.
	serialLength = 20
)

// AttachDisk implements provider.DiskController. It waits while the instance starts or stops.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %s to instance %s", diskID, instanceID)
	if !identifier.MatchString(instanceID) {
		return nil, p.absent(instanceID)
	}
	err = p.wait.Until(ctx, func() (bool, error) {
		made, err = p.attachStep(ctx, diskID, instanceID)
		return made != nil, err
	})
	return made, err
}

// attachStep returns the attachment if the instance has the disk, and nil after it has brought that nearer.
func (p *Provider) attachStep(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	i, err := p.getInstance(ctx, instanceID)
	if err == nil && (i == nil || i.Zone == nil) {
		err = p.absent(instanceID)
	}
	if err != nil {
		return nil, err
	}
	v, err := p.look(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	switch status, zone := value(i.Status), value(i.Zone.Name); {
	case v.instance() != "" && v.instance() != instanceID:
		return nil, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.instance())
	case status == "pending", status == "deleting", status == "failed":
		return nil, fmt.Errorf("%w: the instance is %s", provider.ErrUnavailable, status)
	case v.instance() != "" && v.At[0].Auto:
		return nil, fmt.Errorf("%w: it would be deleted with the instance: turn off auto-delete of the volume attachment", provider.ErrInvalidArgument)
	case v.instance() != "":
		return p.attached(ctx, instanceID, v.At[0].ID)
	case v.Zone.Name != zone:
		return nil, fmt.Errorf("%w: the disk is in zone %s, and the instance in zone %s", provider.ErrInvalidArgument, v.Zone.Name, zone)
	case v.Status != statusAvailable, status != "running" && status != "stopped":
		return nil, v.trouble()
	}
	_, err = ask(ctx, p.api.CreateInstanceVolumeAttachmentWithContext, vpcv1.CreateInstanceVolumeAttachmentOptions{
		InstanceID: &instanceID, Volume: &vpcv1.VolumeAttachmentPrototypeVolumeVolumeIdentityVolumeIdentityByID{ID: &diskID}, DeleteVolumeOnInstanceDelete: new(false),
	})
	has := len(i.VolumeAttachments) - 1 // without the boot volume's
	switch {
	case busy(err):
		return nil, nil // who has it, the next look tells
	case has >= maxDataDisks && failure.HasStatus(err, http.StatusBadRequest, http.StatusForbidden):
		return nil, fmt.Errorf("%w: the instance has %d disks: %v", provider.ErrCapacity, has, err) // whose class is another
	}
	return nil, err
}

// attached returns an attachment when the guest has it, and nil before.
func (p *Provider) attached(ctx context.Context, instanceID, id string) (*provider.Attachment, error) {
	a, err := ask(ctx, p.api.GetInstanceVolumeAttachmentWithContext, vpcv1.GetInstanceVolumeAttachmentOptions{InstanceID: &instanceID, ID: &id})
	switch {
	case failure.HasStatus(err, http.StatusNotFound):
		return nil, nil // it goes just now
	case err != nil:
		return nil, err
	case value(a.Status) != vpcv1.VolumeAttachmentStatusAttachedConst || a.Device == nil || value(a.Device.ID) == "":
		return nil, nil
	}
	serial := value(a.Device.ID)
	return &provider.Attachment{Serial: serial[:min(len(serial), serialLength)]}, nil
}

// DetachDisk implements provider.DiskController. It waits while the cloud takes a snapshot of the disk, which could not be
// attached again otherwise (page "About Block Storage snapshots").
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %s from instance %s", diskID, instanceID)
	return p.wait.Until(ctx, func() (bool, error) {
		v, err := p.look(ctx, kindDisk, diskID)
		switch {
		case errors.Is(err, provider.ErrNotFound), err == nil && v.instance() != instanceID:
			return true, nil
		case err != nil || v.Busy:
			return false, err
		}
		err = order(ctx, p.api.DeleteInstanceVolumeAttachmentWithContext, vpcv1.DeleteInstanceVolumeAttachmentOptions{InstanceID: &instanceID, ID: &v.At[0].ID})
		if busy(err) || errors.Is(err, provider.ErrNotFound) {
			err = nil
		}
		return false, err
	})
}

// ResizeDisk implements provider.DiskController.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk %s", diskID)
	err = p.wait.Until(ctx, func() (bool, error) {
		v, err := p.settled(ctx, kindDisk, diskID)
		if err != nil {
			return false, err
		}
		if grown = disk(v); grown.Bytes >= bytes {
			return true, nil
		}
		size, err := p.capacity(ctx, grown.Type, bytes, 0)
		if err == nil {
			err = v.asleep("made larger")
		}
		if err != nil {
			return false, err
		}
		_, err = ask(ctx, p.api.UpdateVolumeWithContext, vpcv1.UpdateVolumeOptions{ID: &diskID, VolumePatch: map[string]any{"capacity": size}})
		if busy(err) {
			err = nil
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return grown, nil
}
