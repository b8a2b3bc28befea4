// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
)

// The calls about disks that a broken provider gets wrong.
type (
	diskMaker    func(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error)
	diskLister   func(ctx context.Context, match map[string]string) ([]provider.Disk, error)
	attacher     func(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error)
	detacher     func(ctx context.Context, diskID, instanceID string) error
	resizer      func(ctx context.Context, diskID string, bytes int64) (*provider.Disk, error)
	snapper      func(ctx context.Context, key, diskID string, tags map[string]string) (*provider.Snapshot, error)
	snapLister   func(ctx context.Context, match map[string]string) ([]provider.Snapshot, error)
	diskGetter   func(ctx context.Context, id string) (*provider.Disk, error)
	snapGetter   func(ctx context.Context, id string) (*provider.Snapshot, error)
	brokenAttach func(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error)
)

// diskCalls are all of them, as they are when nothing is broken.
type diskCalls struct {
	create diskMaker
	get    diskGetter
	list   diskLister
	delete deleter
	attach attacher
	detach detacher
	resize resizer

	snap       snapper
	getSnap    snapGetter
	listSnaps  snapLister
	deleteSnap deleter
}

func soundDisks(c *fake.Cloud) diskCalls {
	return diskCalls{
		c.CreateDisk, c.GetDisk, c.ListDisks, c.DeleteDisk, c.AttachDisk, c.DetachDisk, c.ResizeDisk,
		c.CreateSnapshot, c.GetSnapshot, c.ListSnapshots, c.DeleteSnapshot,
	}
}

func (b *broken) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
	return b.disk.create(ctx, key, spec)
}
func (b *broken) GetDisk(ctx context.Context, id string) (*provider.Disk, error) {
	return b.disk.get(ctx, id)
}
func (b *broken) ListDisks(ctx context.Context, match map[string]string) ([]provider.Disk, error) {
	return b.disk.list(ctx, match)
}
func (b *broken) DeleteDisk(ctx context.Context, id string) error { return b.disk.delete(ctx, id) }
func (b *broken) AttachDisk(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	return b.disk.attach(ctx, diskID, instanceID)
}
func (b *broken) DetachDisk(ctx context.Context, diskID, instanceID string) error {
	return b.disk.detach(ctx, diskID, instanceID)
}
func (b *broken) ResizeDisk(ctx context.Context, id string, bytes int64) (*provider.Disk, error) {
	return b.disk.resize(ctx, id, bytes)
}
func (b *broken) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (*provider.Snapshot, error) {
	return b.disk.snap(ctx, key, diskID, tags)
}
func (b *broken) GetSnapshot(ctx context.Context, id string) (*provider.Snapshot, error) {
	return b.disk.getSnap(ctx, id)
}
func (b *broken) ListSnapshots(ctx context.Context, match map[string]string) ([]provider.Snapshot, error) {
	return b.disk.listSnaps(ctx, match)
}
func (b *broken) DeleteSnapshot(ctx context.Context, id string) error {
	return b.disk.deleteSnap(ctx, id)
}

// maxDisks is how many disks an instance of a cloud under test has at most.
const maxDisks = 3

// withDisks adds what the suite needs for disks of the fake.
func withDisks(s conformance.Subject, cloud *fake.Cloud) conformance.Subject {
	s.OtherZone, s.DisksPerInstance = "fake-zone-b", maxDisks
	s.WriteDisk = cloud.WriteDisk
	s.ReadDisk = func(id string, bytes int) ([]byte, error) {
		data, err := cloud.ReadDisk(id)
		return data[:min(bytes, len(data))], err
	}
	s.Foreign = func(tags map[string]string) (conformance.Foreign, error) {
		disk, snapshot, err := cloud.AddForeign(tags)
		return conformance.Foreign{DiskID: disk, SnapshotID: snapshot, Remove: func() error { return cloud.RemoveForeign(disk, snapshot) }}, err
	}
	return s
}
