// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outrigger/outrigger/provider"
)

// CreateSnapshot implements [csi.ControllerServer].
func (c *controller) CreateSnapshot(ctx context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := errors.Join(c.haveSnapshots(), required("source_volume_id", r.GetSourceVolumeId())); err != nil {
		return nil, err
	}
	for name := range r.GetParameters() {
		if !strings.HasPrefix(name, sidecarPrefix) {
			return nil, invalid("unknown parameter %q in the VolumeSnapshotClass: there are none", name)
		}
	}
	key := keyOf(r.GetName())
	s, err := c.snapshots.CreateSnapshot(ctx, key, r.GetSourceVolumeId(), c.tags(key, r.GetParameters()[sidecarPrefix+"volumesnapshot/namespace"]))
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotOf(s)}, nil
}

// DeleteSnapshot implements [csi.ControllerServer].
func (c *controller) DeleteSnapshot(ctx context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := errors.Join(c.haveSnapshots(), required("snapshot_id", r.GetSnapshotId())); err != nil {
		return nil, err
	}
	if err := c.snapshots.DeleteSnapshot(ctx, r.GetSnapshotId()); err != nil && !missing(err) {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots implements [csi.ControllerServer]: one by its id, also if it was not made here, or
// those of this cluster.
func (c *controller) ListSnapshots(ctx context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if err := c.haveSnapshots(); err != nil {
		return nil, err
	}
	all, err := c.findSnapshots(ctx, r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	if disk := r.GetSourceVolumeId(); disk != "" {
		all = slices.DeleteFunc(all, func(s provider.Snapshot) bool { return s.DiskID != disk })
	}
	page, next, err := cut(all, func(s provider.Snapshot) (int64, string) { return s.Created.UnixNano(), s.ID }, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	list := &csi.ListSnapshotsResponse{NextToken: next}
	for i := range page {
		list.Entries = append(list.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotOf(&page[i])})
	}
	return list, nil
}

func (c *controller) findSnapshots(ctx context.Context, id string) ([]provider.Snapshot, error) {
	if id == "" {
		return c.snapshots.ListSnapshots(ctx, c.owner())
	}
	s, err := c.snapshots.GetSnapshot(ctx, id)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []provider.Snapshot{*s}, nil
}

func (c *controller) haveSnapshots() error {
	if c.snapshots == nil {
		return provider.ErrUnimplemented
	}
	return nil
}

func snapshotOf(s *provider.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{SnapshotId: s.ID, SourceVolumeId: s.DiskID, SizeBytes: s.Bytes, ReadyToUse: s.Ready, CreationTime: timestamppb.New(s.Created)}
}
