// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

func (s *Server) CreateDisk(ctx context.Context, request *pluginpb.CreateDiskRequest) (*pluginpb.CreateDiskResponse, error) {
	return serve(ctx, s, (*session).create, "CreateDisk", request, func(p provider.DiskController) (*pluginpb.CreateDiskResponse, error) {
		disk, err := p.CreateDisk(ctx, request.Key, diskSpecFromWire(request.Spec))
		return &pluginpb.CreateDiskResponse{Disk: diskToWire(disk)}, err
	})
}

func (s *Server) GetDisk(ctx context.Context, request *pluginpb.GetDiskRequest) (*pluginpb.GetDiskResponse, error) {
	return serve(ctx, s, (*session).call, "GetDisk", request, func(p provider.DiskController) (*pluginpb.GetDiskResponse, error) {
		disk, err := p.GetDisk(ctx, request.DiskId)
		return &pluginpb.GetDiskResponse{Disk: diskToWire(disk)}, err
	})
}

func (s *Server) ListDisks(ctx context.Context, request *pluginpb.ListDisksRequest) (*pluginpb.ListDisksResponse, error) {
	return serve(ctx, s, (*session).list, "ListDisks", request, func(p provider.DiskController) (*pluginpb.ListDisksResponse, error) {
		list, err := p.ListDisks(ctx, request.Match)
		return &pluginpb.ListDisksResponse{Disks: eachOf(list, diskToWire)}, err
	})
}

func (s *Server) DeleteDisk(ctx context.Context, request *pluginpb.DeleteDiskRequest) (*pluginpb.DeleteDiskResponse, error) {
	return serve(ctx, s, (*session).call, "DeleteDisk", request, func(p provider.DiskController) (*pluginpb.DeleteDiskResponse, error) {
		return &pluginpb.DeleteDiskResponse{}, p.DeleteDisk(ctx, request.DiskId)
	})
}

func (s *Server) AttachDisk(ctx context.Context, request *pluginpb.AttachDiskRequest) (*pluginpb.AttachDiskResponse, error) {
	return serve(ctx, s, (*session).call, "AttachDisk", request, func(p provider.DiskController) (*pluginpb.AttachDiskResponse, error) {
		attachment, err := p.AttachDisk(ctx, request.DiskId, request.InstanceId)
		if attachment == nil {
			return &pluginpb.AttachDiskResponse{}, err
		}
		return &pluginpb.AttachDiskResponse{Attachment: &pluginpb.Attachment{Serial: attachment.Serial}}, err
	})
}

func (s *Server) DetachDisk(ctx context.Context, request *pluginpb.DetachDiskRequest) (*pluginpb.DetachDiskResponse, error) {
	return serve(ctx, s, (*session).call, "DetachDisk", request, func(p provider.DiskController) (*pluginpb.DetachDiskResponse, error) {
		return &pluginpb.DetachDiskResponse{}, p.DetachDisk(ctx, request.DiskId, request.InstanceId)
	})
}

func (s *Server) ResizeDisk(ctx context.Context, request *pluginpb.ResizeDiskRequest) (*pluginpb.ResizeDiskResponse, error) {
	return serve(ctx, s, (*session).call, "ResizeDisk", request, func(p provider.DiskController) (*pluginpb.ResizeDiskResponse, error) {
		disk, err := p.ResizeDisk(ctx, request.DiskId, request.Bytes)
		return &pluginpb.ResizeDiskResponse{Disk: diskToWire(disk)}, err
	})
}

func (s *Server) CreateSnapshot(ctx context.Context, request *pluginpb.CreateSnapshotRequest) (*pluginpb.CreateSnapshotResponse, error) {
	return serve(ctx, s, (*session).create, "CreateSnapshot", request, func(p provider.DiskSnapshotter) (*pluginpb.CreateSnapshotResponse, error) {
		snapshot, err := p.CreateSnapshot(ctx, request.Key, request.DiskId, request.Tags)
		return &pluginpb.CreateSnapshotResponse{Snapshot: snapshotToWire(snapshot)}, err
	})
}

func (s *Server) GetSnapshot(ctx context.Context, request *pluginpb.GetSnapshotRequest) (*pluginpb.GetSnapshotResponse, error) {
	return serve(ctx, s, (*session).call, "GetSnapshot", request, func(p provider.DiskSnapshotter) (*pluginpb.GetSnapshotResponse, error) {
		snapshot, err := p.GetSnapshot(ctx, request.SnapshotId)
		return &pluginpb.GetSnapshotResponse{Snapshot: snapshotToWire(snapshot)}, err
	})
}

func (s *Server) ListSnapshots(ctx context.Context, request *pluginpb.ListSnapshotsRequest) (*pluginpb.ListSnapshotsResponse, error) {
	return serve(ctx, s, (*session).list, "ListSnapshots", request, func(p provider.DiskSnapshotter) (*pluginpb.ListSnapshotsResponse, error) {
		list, err := p.ListSnapshots(ctx, request.Match)
		return &pluginpb.ListSnapshotsResponse{Snapshots: eachOf(list, snapshotToWire)}, err
	})
}

func (s *Server) DeleteSnapshot(ctx context.Context, request *pluginpb.DeleteSnapshotRequest) (*pluginpb.DeleteSnapshotResponse, error) {
	return serve(ctx, s, (*session).call, "DeleteSnapshot", request, func(p provider.DiskSnapshotter) (*pluginpb.DeleteSnapshotResponse, error) {
		return &pluginpb.DeleteSnapshotResponse{}, p.DeleteSnapshot(ctx, request.SnapshotId)
	})
}
