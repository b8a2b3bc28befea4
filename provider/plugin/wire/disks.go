// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

func (s *Server) CreateDisk(ctx context.Context, request *pluginpb.CreateDiskRequest) (*pluginpb.CreateDiskResponse, error) {
	answer := &pluginpb.CreateDiskResponse{}
	return answer, creating(ctx, s, "CreateDisk", request, func(p provider.DiskController) error {
		disk, err := p.CreateDisk(ctx, request.Key, diskSpecFromWire(request.Spec))
		answer.Disk = diskToWire(disk)
		return err
	})
}

func (s *Server) GetDisk(ctx context.Context, request *pluginpb.GetDiskRequest) (*pluginpb.GetDiskResponse, error) {
	answer := &pluginpb.GetDiskResponse{}
	return answer, withCapability(ctx, s, "GetDisk", request, func(p provider.DiskController) error {
		disk, err := p.GetDisk(ctx, request.DiskId)
		answer.Disk = diskToWire(disk)
		return err
	})
}

func (s *Server) ListDisks(ctx context.Context, request *pluginpb.ListDisksRequest) (*pluginpb.ListDisksResponse, error) {
	answer := &pluginpb.ListDisksResponse{}
	return answer, listing(ctx, s, "ListDisks", request, func(p provider.DiskController) error {
		list, err := p.ListDisks(ctx, request.Match)
		for i := range list {
			answer.Disks = append(answer.Disks, diskToWire(&list[i]))
		}
		return err
	})
}

func (s *Server) DeleteDisk(ctx context.Context, request *pluginpb.DeleteDiskRequest) (*pluginpb.DeleteDiskResponse, error) {
	return &pluginpb.DeleteDiskResponse{}, withCapability(ctx, s, "DeleteDisk", request, func(p provider.DiskController) error {
		return p.DeleteDisk(ctx, request.DiskId)
	})
}

func (s *Server) AttachDisk(ctx context.Context, request *pluginpb.AttachDiskRequest) (*pluginpb.AttachDiskResponse, error) {
	answer := &pluginpb.AttachDiskResponse{}
	return answer, withCapability(ctx, s, "AttachDisk", request, func(p provider.DiskController) error {
		attachment, err := p.AttachDisk(ctx, request.DiskId, request.InstanceId)
		if attachment != nil {
			answer.Attachment = &pluginpb.Attachment{Serial: attachment.Serial}
		}
		return err
	})
}

func (s *Server) DetachDisk(ctx context.Context, request *pluginpb.DetachDiskRequest) (*pluginpb.DetachDiskResponse, error) {
	return &pluginpb.DetachDiskResponse{}, withCapability(ctx, s, "DetachDisk", request, func(p provider.DiskController) error {
		return p.DetachDisk(ctx, request.DiskId, request.InstanceId)
	})
}

func (s *Server) ResizeDisk(ctx context.Context, request *pluginpb.ResizeDiskRequest) (*pluginpb.ResizeDiskResponse, error) {
	answer := &pluginpb.ResizeDiskResponse{}
	return answer, withCapability(ctx, s, "ResizeDisk", request, func(p provider.DiskController) error {
		disk, err := p.ResizeDisk(ctx, request.DiskId, request.Bytes)
		answer.Disk = diskToWire(disk)
		return err
	})
}

func (s *Server) CreateSnapshot(ctx context.Context, request *pluginpb.CreateSnapshotRequest) (*pluginpb.CreateSnapshotResponse, error) {
	answer := &pluginpb.CreateSnapshotResponse{}
	return answer, creating(ctx, s, "CreateSnapshot", request, func(p provider.DiskSnapshotter) error {
		snapshot, err := p.CreateSnapshot(ctx, request.Key, request.DiskId, request.Tags)
		answer.Snapshot = snapshotToWire(snapshot)
		return err
	})
}

func (s *Server) GetSnapshot(ctx context.Context, request *pluginpb.GetSnapshotRequest) (*pluginpb.GetSnapshotResponse, error) {
	answer := &pluginpb.GetSnapshotResponse{}
	return answer, withCapability(ctx, s, "GetSnapshot", request, func(p provider.DiskSnapshotter) error {
		snapshot, err := p.GetSnapshot(ctx, request.SnapshotId)
		answer.Snapshot = snapshotToWire(snapshot)
		return err
	})
}

func (s *Server) ListSnapshots(ctx context.Context, request *pluginpb.ListSnapshotsRequest) (*pluginpb.ListSnapshotsResponse, error) {
	answer := &pluginpb.ListSnapshotsResponse{}
	return answer, listing(ctx, s, "ListSnapshots", request, func(p provider.DiskSnapshotter) error {
		list, err := p.ListSnapshots(ctx, request.Match)
		for i := range list {
			answer.Snapshots = append(answer.Snapshots, snapshotToWire(&list[i]))
		}
		return err
	})
}

func (s *Server) DeleteSnapshot(ctx context.Context, request *pluginpb.DeleteSnapshotRequest) (*pluginpb.DeleteSnapshotResponse, error) {
	return &pluginpb.DeleteSnapshotResponse{}, withCapability(ctx, s, "DeleteSnapshot", request, func(p provider.DiskSnapshotter) error {
		return p.DeleteSnapshot(ctx, request.SnapshotId)
	})
}
