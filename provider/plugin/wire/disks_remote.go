// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

func (r *remote) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
	answer, err := call(ctx, r.client, "CreateDisk", r.rpc.CreateDisk,
		&pluginpb.CreateDiskRequest{Configuration: r.configuration, Key: key, Spec: diskSpecToWire(spec)})
	return read(r, "CreateDisk", answer.GetDisk(), err, diskFromWire)
}

func (r *remote) GetDisk(ctx context.Context, diskID string) (*provider.Disk, error) {
	answer, err := call(ctx, r.client, "GetDisk", r.rpc.GetDisk, &pluginpb.GetDiskRequest{Configuration: r.configuration, DiskId: diskID})
	return read(r, "GetDisk", answer.GetDisk(), err, diskFromWire)
}

func (r *remote) ListDisks(ctx context.Context, match map[string]string) ([]provider.Disk, error) {
	answer, err := call(ctx, r.client, "ListDisks", r.rpc.ListDisks, &pluginpb.ListDisksRequest{Configuration: r.configuration, Match: match})
	return readAll(r, "ListDisks", answer.GetDisks(), err, diskFromWire)
}

func (r *remote) DeleteDisk(ctx context.Context, diskID string) error {
	_, err := call(ctx, r.client, "DeleteDisk", r.rpc.DeleteDisk, &pluginpb.DeleteDiskRequest{Configuration: r.configuration, DiskId: diskID})
	return err
}

func (r *remote) AttachDisk(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	answer, err := call(ctx, r.client, "AttachDisk", r.rpc.AttachDisk,
		&pluginpb.AttachDiskRequest{Configuration: r.configuration, DiskId: diskID, InstanceId: instanceID})
	return read(r, "AttachDisk", answer.GetAttachment(), err, attachmentFromWire)
}

func (r *remote) DetachDisk(ctx context.Context, diskID, instanceID string) error {
	_, err := call(ctx, r.client, "DetachDisk", r.rpc.DetachDisk,
		&pluginpb.DetachDiskRequest{Configuration: r.configuration, DiskId: diskID, InstanceId: instanceID})
	return err
}

func (r *remote) ResizeDisk(ctx context.Context, diskID string, bytes int64) (*provider.Disk, error) {
	answer, err := call(ctx, r.client, "ResizeDisk", r.rpc.ResizeDisk, &pluginpb.ResizeDiskRequest{Configuration: r.configuration, DiskId: diskID, Bytes: bytes})
	return read(r, "ResizeDisk", answer.GetDisk(), err, diskFromWire)
}

func (r *remote) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (*provider.Snapshot, error) {
	answer, err := call(ctx, r.client, "CreateSnapshot", r.rpc.CreateSnapshot,
		&pluginpb.CreateSnapshotRequest{Configuration: r.configuration, Key: key, DiskId: diskID, Tags: tags})
	return read(r, "CreateSnapshot", answer.GetSnapshot(), err, snapshotFromWire)
}

func (r *remote) GetSnapshot(ctx context.Context, snapshotID string) (*provider.Snapshot, error) {
	answer, err := call(ctx, r.client, "GetSnapshot", r.rpc.GetSnapshot, &pluginpb.GetSnapshotRequest{Configuration: r.configuration, SnapshotId: snapshotID})
	return read(r, "GetSnapshot", answer.GetSnapshot(), err, snapshotFromWire)
}

func (r *remote) ListSnapshots(ctx context.Context, match map[string]string) ([]provider.Snapshot, error) {
	answer, err := call(ctx, r.client, "ListSnapshots", r.rpc.ListSnapshots, &pluginpb.ListSnapshotsRequest{Configuration: r.configuration, Match: match})
	return readAll(r, "ListSnapshots", answer.GetSnapshots(), err, snapshotFromWire)
}

func (r *remote) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	_, err := call(ctx, r.client, "DeleteSnapshot", r.rpc.DeleteSnapshot, &pluginpb.DeleteSnapshotRequest{Configuration: r.configuration, SnapshotId: snapshotID})
	return err
}

func diskSpecToWire(s provider.DiskSpec) *pluginpb.DiskSpec {
	return &pluginpb.DiskSpec{
		Name: s.Name, Bytes: s.Bytes, LimitBytes: s.Limit, Type: s.Type, Zone: s.Zone,
		FromSnapshot: s.FromSnapshot, FromDisk: s.FromDisk, Tags: s.Tags,
	}
}

func diskSpecFromWire(m *pluginpb.DiskSpec) provider.DiskSpec {
	return provider.DiskSpec{
		Name: m.GetName(), Bytes: m.GetBytes(), Limit: m.GetLimitBytes(), Type: m.GetType(), Zone: m.GetZone(),
		FromSnapshot: m.GetFromSnapshot(), FromDisk: m.GetFromDisk(), Tags: m.GetTags(),
	}
}

func diskToWire(d *provider.Disk) *pluginpb.Disk {
	if d == nil {
		return nil
	}
	return &pluginpb.Disk{
		Id: d.ID, Key: d.Key, Bytes: d.Bytes, Type: d.Type, Zone: d.Zone, FromSnapshot: d.FromSnapshot, FromDisk: d.FromDisk,
		InstanceId: d.InstanceID, Tags: d.Tags, CreatedUnixNano: timeToWire(d.Created),
	}
}

func diskFromWire(m *pluginpb.Disk) (*provider.Disk, error) {
	if m == nil {
		return nil, errors.New("neither a disk nor an error")
	}
	if err := checkToken("id of the disk", m.Id); err != nil {
		return nil, err
	}
	return &provider.Disk{
		ID: m.Id, Key: m.Key, Bytes: m.Bytes, Type: m.Type, Zone: m.Zone, FromSnapshot: m.FromSnapshot, FromDisk: m.FromDisk,
		InstanceID: m.InstanceId, Tags: m.Tags, Created: timeFromWire(m.CreatedUnixNano),
	}, nil
}

// attachmentFromWire refuses an empty serial number: disks without one have it, too.
func attachmentFromWire(m *pluginpb.Attachment) (*provider.Attachment, error) {
	if m == nil {
		return nil, errors.New("neither an attachment nor an error")
	}
	if err := checkToken("serial number of the disk", m.Serial); err != nil {
		return nil, err
	}
	return &provider.Attachment{Serial: m.Serial}, nil
}

func snapshotToWire(s *provider.Snapshot) *pluginpb.Snapshot {
	if s == nil {
		return nil
	}
	return &pluginpb.Snapshot{
		Id: s.ID, Key: s.Key, DiskId: s.DiskID, Bytes: s.Bytes, Ready: s.Ready, Tags: s.Tags, CreatedUnixNano: timeToWire(s.Created),
	}
}

func snapshotFromWire(m *pluginpb.Snapshot) (*provider.Snapshot, error) {
	if m == nil {
		return nil, errors.New("neither a snapshot nor an error")
	}
	if err := checkToken("id of the snapshot", m.Id); err != nil {
		return nil, err
	}
	return &provider.Snapshot{
		ID: m.Id, Key: m.Key, DiskID: m.DiskId, Bytes: m.Bytes, Ready: m.Ready, Tags: m.Tags, Created: timeFromWire(m.CreatedUnixNano),
	}, nil
}

// checkToken returns why a text of a plugin cannot be what others are told by.
func checkToken(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("the %s is empty", what)
	case len(text) > provider.MaxID:
		return fmt.Errorf("the %s has %d bytes, of which it may have %d", what, len(text), provider.MaxID)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("the %s, %q, has control characters", what, text)
	}
	return nil
}
