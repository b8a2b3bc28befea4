// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/outrigger/outrigger/provider"
)

// CreateSnapshot implements provider.DiskSnapshotter. EC2 takes no token with the call. So a key has one call at a time, the
// SDK repeats none, and while EC2 may not yet show what an earlier call has made, nothing is made. Of two
// that two processes make at the same time the older stays.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, given map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	m, err := p.newMaking(kindSnapshot, key, key, given)
	if err != nil {
		return nil, err
	}
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	name := kindSnapshot + " " + m.owner[provider.TagCluster] + " " + key
	unlock, err := p.locks.Take(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	v, err := p.madeBefore(ctx, s, m, name)
	if v == nil && err == nil {
		v, err = p.makeSnapshot(ctx, s, m, name, diskID)
	}
	if err != nil {
		return nil, err
	}
	p.doubtful.Delete(name)
	if made = snapshot(v); made.DiskID != diskID {
		return nil, fmt.Errorf("%w: snapshot %s of the same key is of disk %s", provider.ErrAlreadyExists, v.id, made.DiskID)
	}
	return made, nil
}

// madeBefore returns nil when EC2 must have shown what a call before this has made, in this process or in the one before.
func (p *Provider) madeBefore(ctx context.Context, s *session, m *making, name string) (*volume, error) {
	last := p.began
	if at, ok := p.doubtful.Load(name); ok {
		last = at.(time.Time)
	}
	return p.lookFor(ctx, time.Until(last.Add(p.timing.settle)), func() (*volume, error) { return s.oldest(ctx, m) })
}

// makeSnapshot returns when EC2 shows what it has made, or an older one of the key. Only the younger of two is ever removed.
func (p *Provider) makeSnapshot(ctx context.Context, s *session, m *making, name, diskID string) (*volume, error) {
	if _, err := s.getVolume(ctx, kindDisk, diskID); err != nil {
		return nil, err
	}
	out, err := s.ec2().CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: &diskID, TagSpecifications: m.specifications()}, func(o *ec2.Options) { o.Retryer = sdk.NopRetryer{} })
	if err != nil {
		if !refused(err) {
			p.doubtful.Store(name, time.Now())
		}
		return nil, err
	}
	made := &volume{id: sdk.ToString(out.SnapshotId), created: sdk.ToTime(out.StartTime)}
	v, err := p.lookFor(ctx, p.timing.token, func() (*volume, error) {
		v, err := s.oldest(ctx, m)
		if v != nil && byAge(v, made) > 0 {
			v = nil
		}
		return v, err
	})
	switch {
	case err != nil || v == nil:
		p.doubtful.Store(name, time.Now())
		return nil, cmp.Or(err, fmt.Errorf("%w: snapshot %s was made and does not appear", provider.ErrUnavailable, made.id))
	case v.id != made.id:
		err = s.remove(ctx, kindSnapshot, made.id)
	}
	return v, err
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (found *provider.Snapshot, err error) {
	defer explain(&err, "get snapshot")
	v, err := p.get(ctx, kindSnapshot, snapshotID)
	if err != nil {
		return nil, err
	}
	return snapshot(v), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	found, err := p.volumesBy(ctx, kindSnapshot, match)
	for _, v := range found {
		list = append(list, *snapshot(v))
	}
	return list, err
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) (err error) {
	defer explain(&err, "delete snapshot %.100s", snapshotID)
	return p.removeOwn(ctx, kindSnapshot, snapshotID)
}
