// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// AttachDisk implements provider.DiskController. It waits while the instance starts or stops.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %s to instance %s", diskID, instanceID)
	for t := p.pace.ticker(); ; {
		made, err := p.attachStep(ctx, diskID, instanceID)
		if made != nil || err != nil {
			return made, err
		}
		if err := t.Wait(ctx); err != nil {
			return nil, failure.Classify(err)
		}
	}
}

// attachStep returns the attachment if the instance has the disk, and nil after it has brought that nearer.
func (p *Provider) attachStep(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	m, err := p.existing(ctx, instanceID) // also a Node's own, for ordinary pods
	if err != nil {
		return nil, err
	}
	v, err := p.getVolume(ctx, kindDisk, diskID)
	switch {
	case err != nil:
		return nil, err
	case v.instance != "" && v.instance != instanceID:
		return nil, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.instance)
	case p.memory.deleted.get(instanceID):
		return nil, fmt.Errorf("%w: the instance is being deleted", provider.ErrUnavailable)
	case v.shared:
		return nil, fmt.Errorf("%w: it is for several instances at a time (MultiAttach)", provider.ErrInvalidArgument)
	case v.zone != "" && v.zone != m.zone: // one that is in several zones names none
		return nil, fmt.Errorf("%w: the disk is in zone %s, and the instance in zone %s", provider.ErrInvalidArgument, v.zone, m.zone)
	case v.serial == "":
		return nil, fmt.Errorf("%w: a disk that was made before June 10, 2020 has no serial number, by which the guest would find it: make a copy of it", provider.ErrInvalidArgument)
	case v.status == diskInUse && v.instance == instanceID:
		return &provider.Attachment{Serial: v.serial}, nil
	case v.status != diskAvailable, settling[m.status] != "":
		return nil, nil
	}
	_, err = call(ctx, p.api, "ecs:AttachDisk", p.api.ecs().AttachDiskWithContext,
		&ecs.AttachDiskRequest{DiskId: new(diskID), InstanceId: new(instanceID), DeleteWithInstance: new(false)})
	if busy(err) || errors.Is(err, provider.ErrInUse) {
		return nil, nil // who has it, the next look tells
	}
	return nil, err
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %s from instance %s", diskID, instanceID)
	for t := p.pace.ticker(); ; {
		v, err := p.getVolume(ctx, kindDisk, diskID)
		switch {
		case errors.Is(err, provider.ErrNotFound), err == nil && v.instance != instanceID:
			return nil
		case err != nil:
			return err
		case v.status == diskInUse:
			_, err = call(ctx, p.api, "ecs:DetachDisk", p.api.ecs().DetachDiskWithContext, &ecs.DetachDiskRequest{DiskId: new(diskID), InstanceId: new(instanceID)})
			if err != nil && !busy(err) && !errors.Is(err, provider.ErrNotFound) {
				return err
			}
		}
		if err := t.Wait(ctx); err != nil {
			return failure.Classify(err)
		}
	}
}

// ResizeDisk implements provider.DiskController. Under an instance that runs the size changes online.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk %s", diskID)
	for t := p.pace.ticker(); ; {
		v, err := p.settledDisk(ctx, diskID)
		if err != nil || v.bytes >= bytes {
			if err != nil {
				return nil, err
			}
			return disk(v), nil
		}
		size, err := disks.GiB(bytes, 0, leastGiB[v.kind], maxGiB)
		if err != nil {
			return nil, err
		}
		request := &ecs.ResizeDiskRequest{DiskId: new(diskID), NewSize: new(int32(size)), Type: new("offline")}
		if v.instance != "" {
			m, err := p.byID(ctx, v.instance)
			if err != nil {
				return nil, err
			}
			if m != nil && m.status == statusRunning {
				request.Type = new("online")
			}
		}
		request.ClientToken = new(clientToken("resize", diskID, *request.Type, strconv.FormatInt(size, 10)))
		if _, err = call(ctx, p.api, "ecs:ResizeDisk", p.api.ecs().ResizeDiskWithContext, request); err != nil && !busy(err) {
			return nil, err
		}
		if err := t.Wait(ctx); err != nil {
			return nil, failure.Classify(err)
		}
	}
}
