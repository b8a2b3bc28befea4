// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"context"
	"errors"

	"github.com/outrigger/outrigger/provider"
)

// Disks are what a provider with disks has.
type Disks interface {
	provider.DiskController
	provider.DiskSnapshotter
}

// DiskLife makes a disk of so many bytes, attaches it, makes it larger, copies it twice, and removes
// all. It also goes on from where a failed one has stopped.
func DiskLife(ctx context.Context, p Disks, bytes int64, instanceID string) error {
	d, err := p.CreateDisk(ctx, "d", provider.DiskSpec{Bytes: bytes, Tags: OwnerTags("d")})
	if err != nil {
		return err
	}
	if _, err := p.AttachDisk(ctx, d.ID, instanceID); err != nil {
		return err
	}
	if _, err := p.ResizeDisk(ctx, d.ID, 2*bytes); err != nil {
		return err
	}
	s, err := p.CreateSnapshot(ctx, "s", d.ID, OwnerTags("s"))
	if err != nil {
		return err
	}
	c, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: OwnerTags("c")})
	if err != nil {
		return err
	}
	if err := p.DetachDisk(ctx, d.ID, instanceID); err != nil {
		return err
	}
	if err := errors.Join(p.DeleteSnapshot(ctx, s.ID), p.DeleteDisk(ctx, c.ID)); err != nil {
		return err
	}
	return p.DeleteDisk(ctx, d.ID) // last: the next copies would be of another
}
