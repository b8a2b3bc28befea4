// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"

	"github.com/outrigger/outrigger/provider"
)

var (
	_ provider.DiskController  = (*intercepted)(nil)
	_ provider.DiskSnapshotter = (*intercepted)(nil)
)

func (p *intercepted) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
	return through(ctx, p, Call{Method: "CreateDisk", Key: key, Disk: &spec}, func(inner provider.DiskController) (*provider.Disk, error) {
		return inner.CreateDisk(ctx, key, spec)
	})
}

func (p *intercepted) GetDisk(ctx context.Context, diskID string) (*provider.Disk, error) {
	return through(ctx, p, Call{Method: "GetDisk", DiskID: diskID}, func(inner provider.DiskController) (*provider.Disk, error) {
		return inner.GetDisk(ctx, diskID)
	})
}

func (p *intercepted) ListDisks(ctx context.Context, match map[string]string) ([]provider.Disk, error) {
	return through(ctx, p, Call{Method: "ListDisks", Match: match}, func(inner provider.DiskController) ([]provider.Disk, error) {
		return inner.ListDisks(ctx, match)
	})
}

func (p *intercepted) DeleteDisk(ctx context.Context, diskID string) error {
	return only(ctx, p, Call{Method: "DeleteDisk", DiskID: diskID}, func(inner provider.DiskController) error {
		return inner.DeleteDisk(ctx, diskID)
	})
}

func (p *intercepted) AttachDisk(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	return through(ctx, p, Call{Method: "AttachDisk", DiskID: diskID, InstanceID: instanceID}, func(inner provider.DiskController) (*provider.Attachment, error) {
		return inner.AttachDisk(ctx, diskID, instanceID)
	})
}

func (p *intercepted) DetachDisk(ctx context.Context, diskID, instanceID string) error {
	return only(ctx, p, Call{Method: "DetachDisk", DiskID: diskID, InstanceID: instanceID}, func(inner provider.DiskController) error {
		return inner.DetachDisk(ctx, diskID, instanceID)
	})
}

func (p *intercepted) ResizeDisk(ctx context.Context, diskID string, bytes int64) (*provider.Disk, error) {
	return through(ctx, p, Call{Method: "ResizeDisk", DiskID: diskID, Bytes: bytes}, func(inner provider.DiskController) (*provider.Disk, error) {
		return inner.ResizeDisk(ctx, diskID, bytes)
	})
}

func (p *intercepted) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (*provider.Snapshot, error) {
	return through(ctx, p, Call{Method: "CreateSnapshot", Key: key, DiskID: diskID}, func(inner provider.DiskSnapshotter) (*provider.Snapshot, error) {
		return inner.CreateSnapshot(ctx, key, diskID, tags)
	})
}

func (p *intercepted) GetSnapshot(ctx context.Context, snapshotID string) (*provider.Snapshot, error) {
	return through(ctx, p, Call{Method: "GetSnapshot", SnapshotID: snapshotID}, func(inner provider.DiskSnapshotter) (*provider.Snapshot, error) {
		return inner.GetSnapshot(ctx, snapshotID)
	})
}

func (p *intercepted) ListSnapshots(ctx context.Context, match map[string]string) ([]provider.Snapshot, error) {
	return through(ctx, p, Call{Method: "ListSnapshots", Match: match}, func(inner provider.DiskSnapshotter) ([]provider.Snapshot, error) {
		return inner.ListSnapshots(ctx, match)
	})
}

func (p *intercepted) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return only(ctx, p, Call{Method: "DeleteSnapshot", SnapshotID: snapshotID}, func(inner provider.DiskSnapshotter) error {
		return inner.DeleteSnapshot(ctx, snapshotID)
	})
}
