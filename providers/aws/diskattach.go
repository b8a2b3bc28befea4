// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
)

// AttachDisk implements provider.DiskController. It waits while the instance starts or stops. What AttachVolume attaches stays
// when the instance ends.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %.100s to instance %.100s", diskID, instanceID)
	unlock, err := p.locks.Take(ctx, "disks of "+instanceID) // for the names of devices
	if err != nil {
		return nil, err
	}
	defer unlock()
	taken := map[string]bool{}
	err = p.patiently(ctx, func(ctx context.Context, s *session) (bool, error) {
		made, err = p.attachStep(ctx, s, diskID, instanceID, taken)
		return made != nil, err
	})
	return made, err
}

// attachStep returns the attachment if the instance has the disk, and nil after it has brought that nearer.
func (p *Provider) attachStep(ctx context.Context, s *session, diskID, instanceID string, taken map[string]bool) (*provider.Attachment, error) {
	v, err := s.getVolume(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	i, err := p.find(ctx, s, instanceID, p.timing.settle)
	switch {
	case err != nil:
		return nil, err
	case i == nil || stateName(i) == types.InstanceStateNameTerminated:
		return nil, fmt.Errorf("%w: there is no such instance in %s", provider.ErrNotFound, s.region)
	case v.shared:
		return nil, fmt.Errorf("%w: it is for several instances at a time (Multi-Attach)", provider.ErrInvalidArgument)
	case v.instance != "" && v.instance != instanceID:
		return nil, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.instance)
	case ending(i):
		return nil, fmt.Errorf("%w: the instance is being deleted", provider.ErrUnavailable)
	case i.Placement != nil && sdk.ToString(i.Placement.AvailabilityZone) != v.zone:
		return nil, fmt.Errorf("%w: the disk is in zone %s, and the instance in zone %s", provider.ErrInvalidArgument, v.zone, sdk.ToString(i.Placement.AvailabilityZone))
	case v.attachment == types.VolumeAttachmentStateAttached:
		return &provider.Attachment{Serial: strings.Replace(v.id, "-", "", 1)}, nil
	case v.state != string(types.VolumeStateAvailable):
		return nil, nil
	}
	if err := p.checkNVMe(ctx, s, i.InstanceType); err != nil {
		return nil, err
	}
	return nil, s.attach(ctx, v, i, taken)
}

// attach notes in taken a name that EC2 refuses: somebody else uses it just now, or the image has it.
func (s *session) attach(ctx context.Context, v *volume, i *types.Instance, taken map[string]bool) error {
	device := freeDevice(i, taken)
	if device == "" {
		return fmt.Errorf("%w: the instance has no name for another device", provider.ErrCapacity)
	}
	_, err := s.ec2().AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &v.id, InstanceId: i.InstanceId, Device: &device})
	switch {
	case isCode(err, "AttachmentLimitExceeded"):
		return fmt.Errorf("%w: %w", provider.ErrCapacity, err)
	case isCode(err, "InvalidParameterValue") && strings.Contains(err.Error(), "already in use"):
		taken[device] = true
		return nil
	}
	return err
}

// freeDevice returns a name of a device that the instance does not use (EC2 user guide, "Device names for volumes"): first those
// that no image uses for disks of its own. Guests do not see it.
func freeDevice(i *types.Instance, taken map[string]bool) string {
	used := map[string]bool{"a": true} // the root volume
	for _, d := range i.BlockDeviceMappings {
		used[short.Replace(sdk.ToString(d.DeviceName))] = true
	}
	for _, prefix := range []string{"/dev/xvda", "/dev/xvdb", "/dev/xvdc", "/dev/xvdd", "/dev/sd"} {
		for letter := 'a'; letter <= 'z'; letter++ {
			if name := prefix + string(letter); !taken[name] && !used[short.Replace(name)] {
				return name
			}
		}
	}
	return ""
}

// short leaves of the name of a device what EC2 tells them apart by: /dev/sdb and /dev/xvdb are one.
var short = strings.NewReplacer("/dev/sd", "", "/dev/xvd", "")

// checkNVMe refuses types whose guests see no serial number: those that are not Nitro.
func (p *Provider) checkNVMe(ctx context.Context, s *session, kind types.InstanceType) error {
	nvme, err := p.nvme.Get(ctx, string(kind), func() (bool, time.Time, error) {
		out, err := s.ec2().DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{kind}})
		if err != nil {
			return false, time.Time{}, err
		}
		yes := len(out.InstanceTypes) == 1 && out.InstanceTypes[0].EbsInfo != nil && out.InstanceTypes[0].EbsInfo.NvmeSupport == types.EbsNvmeSupportRequired
		return yes, time.Time{}, nil
	})
	if err == nil && !nvme {
		err = fmt.Errorf("%w: the type %s is not a Nitro one: its disks are not NVMe, and have no serial number, by which the guest would find them", provider.ErrInvalidArgument, kind)
	}
	return err
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %.100s from instance %.100s", diskID, instanceID)
	return p.patiently(ctx, func(ctx context.Context, s *session) (bool, error) {
		v, err := s.getVolume(ctx, kindDisk, diskID)
		switch {
		case errors.Is(err, provider.ErrNotFound), err == nil && v.instance != instanceID:
			return true, nil
		case err == nil && v.attachment == types.VolumeAttachmentStateAttached:
			_, err = s.ec2().DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &diskID, InstanceId: &instanceID})
			err = unless(err, notFoundVolume)
		}
		return false, err
	})
}

// ResizeDisk implements provider.DiskController. EC2 has the new size when it begins to optimize, which takes hours and in which
// it takes no other change.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk %.100s", diskID)
	err = p.patiently(ctx, func(ctx context.Context, s *session) (bool, error) {
		state, err := s.modification(ctx, diskID) // first: the size of a volume that is optimized is the new one
		if err != nil || state == types.VolumeModificationStateModifying {
			return false, err
		}
		v, err := s.getVolume(ctx, kindDisk, diskID)
		switch {
		case err != nil:
			return false, err
		case v.bytes >= bytes:
			grown = disk(v)
			return true, nil
		case state == types.VolumeModificationStateOptimizing:
			return false, fmt.Errorf("%w: EC2 still optimizes the disk after its last change, which takes up to hours", provider.ErrUnavailable)
		}
		gib, err := disks.GiB(bytes, 0, leastGiB[v.kind], maxGiB)
		if err == nil {
			_, err = s.ec2().ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: &diskID, Size: sdk.Int32(int32(gib))})
		}
		return false, err
	})
	return grown, err
}

// modification returns how far the last change of a volume is; empty if there was none.
func (s *session) modification(ctx context.Context, id string) (types.VolumeModificationState, error) {
	out, err := s.ec2().DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{id}})
	if err != nil || len(out.VolumesModifications) == 0 {
		return "", unless(err, "InvalidVolumeModification.NotFound")
	}
	return out.VolumesModifications[0].ModificationState, nil
}
