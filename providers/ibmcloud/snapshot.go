// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
)

func snapshot(s *vpcv1.Snapshot) *provider.Snapshot {
	tags := tagsOf(s.UserTags)
	one := &provider.Snapshot{
		ID: value(s.ID), Key: keyOf(kindSnapshot, tags), DiskID: diskOf(s), Bytes: value(s.MinimumCapacity) << 30,
		Ready: value(s.LifecycleState) == stateStable, Tags: shown(tags),
	}
	if s.CreatedAt != nil {
		one.Created = time.Time(*s.CreatedAt).UTC()
	}
	return one
}

// diskOf returns the volume that a snapshot is of.
func diskOf(s *vpcv1.Snapshot) string {
	if s.SourceVolume == nil {
		return ""
	}
	return value(s.SourceVolume.ID)
}

// CreateSnapshot implements provider.DiskSnapshotter.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, given map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	m, err := p.newMaking(kindSnapshot, key, given, nil)
	if err != nil {
		return nil, err
	}
	s, err := p.findOrMakeSnapshot(ctx, m, diskID)
	if err != nil {
		return nil, err
	}
	if made = snapshot(s); made.DiskID != diskID {
		return nil, fmt.Errorf("%w: snapshot %s of the same key is of disk %s", provider.ErrAlreadyExists, made.ID, made.DiskID)
	}
	return made, nil
}

// findOrMakeSnapshot returns the snapshot of a name when the cloud has read the volume. It waits while the cloud takes another
// of the volume, or changes it.
func (p *Provider) findOrMakeSnapshot(ctx context.Context, m *making, diskID string) (s *vpcv1.Snapshot, err error) {
	err = p.wait.Until(ctx, func() (bool, error) {
		if s, err = p.snapshotNamed(ctx, m.name); s == nil && err == nil {
			s, err = p.makeSnapshot(ctx, m, diskID)
		}
		if s == nil || err != nil {
			return false, err
		}
		switch value(s.LifecycleState) {
		case vpcv1.SnapshotLifecycleStateFailedConst, vpcv1.SnapshotLifecycleStateUnusableConst:
			return false, errors.Join(fmt.Errorf("%w: snapshot %s of disk %s is %s", provider.ErrUnknown, value(s.ID), diskID, value(s.LifecycleState)),
				p.removeSnapshot(ctx, value(s.ID)))
		case vpcv1.SnapshotLifecycleStateDeletingConst:
			return false, nil
		}
		return s.CapturedAt != nil || value(s.LifecycleState) == stateStable, nil
	})
	return s, err
}

// makeSnapshot returns nil when the name is taken or the volume is busy.
func (p *Provider) makeSnapshot(ctx context.Context, m *making, diskID string) (*vpcv1.Snapshot, error) {
	v, err := p.getVolume(ctx, diskID)
	if err == nil {
		err = asleep(v, "copied")
	}
	if err != nil {
		return nil, err
	}
	home, err := p.home(ctx)
	if err != nil {
		return nil, err
	}
	proto := &vpcv1.SnapshotPrototypeSnapshotBySourceVolume{Name: &m.name, UserTags: m.userTags, SourceVolume: &vpcv1.VolumeIdentityByID{ID: v.ID}}
	if home.resourceGroup != "" {
		proto.ResourceGroup = &vpcv1.ResourceGroupIdentityByID{ID: &home.resourceGroup}
	}
	s, err := ask(ctx, p.api.CreateSnapshotWithContext, vpcv1.CreateSnapshotOptions{SnapshotPrototype: proto})
	if busy(err) {
		return nil, nil
	}
	return s, err
}

// settledSnapshot returns a snapshot when a volume can be made of it, and nil when there is none.
func (p *Provider) settledSnapshot(ctx context.Context, id string) (s *vpcv1.Snapshot, err error) {
	err = p.wait.Until(ctx, func() (bool, error) {
		s, err = p.getSnapshot(ctx, id)
		if errors.Is(err, provider.ErrNotFound) {
			s, err = nil, nil
			return true, nil
		}
		if err != nil {
			return false, err
		}
		switch state := value(s.LifecycleState); state {
		case vpcv1.SnapshotLifecycleStatePendingConst, vpcv1.SnapshotLifecycleStateUpdatingConst, vpcv1.SnapshotLifecycleStateWaitingConst:
			return false, nil
		case stateStable:
			return true, nil
		default:
			return false, fmt.Errorf("%w: snapshot %s is %s", provider.ErrUnavailable, id, state)
		}
	})
	return s, err
}

// clone returns a snapshot, of the disk as it is now, by which it is copied.
func (p *Provider) clone(ctx context.Context, key, diskID string, given map[string]string) (id string, err error) {
	m, err := p.newMaking(kindClone, key, given, nil)
	if err != nil {
		return "", err
	}
	err = p.wait.Until(ctx, func() (bool, error) {
		s, err := p.findOrMakeSnapshot(ctx, m, diskID)
		if err != nil {
			return false, err
		}
		if diskOf(s) != diskID { // the key had another source, and its disk is gone or was never made
			return false, p.removeSnapshot(ctx, value(s.ID))
		}
		s, err = p.settledSnapshot(ctx, value(s.ID))
		if s != nil {
			id = value(s.ID)
		}
		return s != nil, err
	})
	return id, err
}

// dropClone removes the snapshot by which a disk was copied. While the cloud still copies, the error is busy.
func (p *Provider) dropClone(ctx context.Context, cluster, key string) error {
	s, err := p.snapshotNamed(ctx, volumeName(kindClone, cluster, key))
	if s == nil || err != nil {
		return err
	}
	return p.removeSnapshot(ctx, value(s.ID))
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (found *provider.Snapshot, err error) {
	defer explain(&err, "get snapshot")
	s, err := p.getSnapshot(ctx, snapshotID)
	if err != nil {
		return nil, err
	}
	return snapshot(s), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	err = listed(match, kindSnapshot, func(tag string, start *string) (*vpcv1.SnapshotCollection, error) {
		return ask(ctx, p.api.ListSnapshotsWithContext, vpcv1.ListSnapshotsOptions{Tag: &tag, Limit: new(pageSize), Start: start})
	}, func(page *vpcv1.SnapshotCollection) []vpcv1.Snapshot { return page.Snapshots },
		func(s *vpcv1.Snapshot) []string { return s.UserTags }, func(s *vpcv1.Snapshot) { list = append(list, *snapshot(s)) })
	return list, err
}

// DeleteSnapshot implements provider.DiskSnapshotter. One of which the cloud still fills a volume is ErrUnavailable.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) (err error) {
	defer explain(&err, "delete snapshot %s", snapshotID)
	s, err := p.getSnapshot(ctx, snapshotID)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return nil
	case err != nil:
		return err
	case snapshot(s).Key == "":
		return fmt.Errorf("%w: it was not made here", provider.ErrPermissionDenied)
	}
	return p.removeSnapshot(ctx, snapshotID)
}

// removeSnapshot returns when there is no such snapshot.
func (p *Provider) removeSnapshot(ctx context.Context, id string) error {
	return p.wait.Until(ctx, func() (bool, error) {
		s, err := p.getSnapshot(ctx, id)
		switch {
		case errors.Is(err, provider.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		case value(s.LifecycleState) == vpcv1.SnapshotLifecycleStateDeletingConst:
			return false, nil
		}
		err = order(ctx, p.api.DeleteSnapshotWithContext, vpcv1.DeleteSnapshotOptions{ID: &id})
		if errors.Is(err, provider.ErrNotFound) {
			err = nil
		}
		return false, err
	})
}
