// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"

	"github.com/outrigger/outrigger/provider"
)

// AttachDisk attaches a disk to an instance that is running or stopped. The serial number
// is the id of the disk.
func (c *Cloud) AttachDisk(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	return answer(ctx, c, OpAttachDisk, func(s *state) (*provider.Attachment, error) {
		if err := c.attach(s, diskID, instanceID); err != nil {
			return nil, fmt.Errorf("fake: attach disk %q to instance %q: %w", diskID, instanceID, err)
		}
		return &provider.Attachment{Serial: diskID}, nil
	})
}

func (c *Cloud) attach(s *state, diskID, instanceID string) error {
	d, err := s.disk(diskID)
	if err != nil {
		return err
	}
	r, err := s.existing(instanceID)
	if err != nil {
		return err
	}
	switch {
	case d.InstanceID == instanceID:
		return nil
	case d.InstanceID != "":
		return fmt.Errorf("%w: instance %s has it", provider.ErrInUse, d.InstanceID)
	case r.State != provider.StateRunning && r.State != provider.StateStopped:
		return fmt.Errorf("%w: the instance is %s", provider.ErrUnavailable, r.State)
	case d.Zone != r.Zone:
		return fmt.Errorf("%w: the disk is in zone %s and the instance in %s", provider.ErrInvalidArgument, d.Zone, r.Zone)
	}
	if most := c.options.Disks.PerInstance; most > 0 && s.attached(instanceID) >= most {
		return fmt.Errorf("%w: the instance has %d disks and can have no more", provider.ErrCapacity, most)
	}
	d.InstanceID = instanceID
	return nil
}

// DetachDisk detaches a disk from an instance that has it.
func (c *Cloud) DetachDisk(ctx context.Context, diskID, instanceID string) error {
	if diskID == "" || instanceID == "" {
		return fmt.Errorf("fake: detach disk %q from instance %q: %w: an id is empty", diskID, instanceID, provider.ErrInvalidArgument)
	}
	_, err := answer(ctx, c, OpDetachDisk, func(s *state) (struct{}, error) {
		if d := s.Disks[diskID]; d != nil && d.InstanceID == instanceID {
			d.InstanceID = ""
		}
		return struct{}{}, nil
	})
	return err
}

// attached returns how many disks an instance has.
func (s *state) attached(instanceID string) int {
	n := 0
	for _, d := range s.Disks {
		if d.InstanceID == instanceID {
			n++
		}
	}
	return n
}

// detachAll detaches every disk of an instance that is deleted.
func (s *state) detachAll(instanceID string) {
	for _, d := range s.Disks {
		if d.InstanceID == instanceID {
			d.InstanceID = ""
		}
	}
}
