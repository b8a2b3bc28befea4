// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// snapshot is one that is there, with the content that the disk had.
type snapshot struct {
	provider.Snapshot
	Data []byte `json:"data,omitempty"`
	// Lists counts down until lists show it, Unready until it is ready.
	Lists   int `json:"lists"`
	Unready int `json:"unready"`
}

// copied returns a copy that shares nothing with n.
func (n *snapshot) copied() provider.Snapshot {
	c := n.Snapshot
	c.Tags = maps.Clone(n.Tags)
	return c
}

// asked returns what a look-up returns, and counts it.
func (n *snapshot) asked() *provider.Snapshot {
	c := n.copied()
	n.Unready = max(0, n.Unready-1)
	n.Ready = n.Unready == 0
	return &c
}

// CreateSnapshot takes the snapshot of a key, or returns the one there is.
func (c *Cloud) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (*provider.Snapshot, error) {
	return answer(ctx, c, OpCreateSnapshot, func(s *state) (*provider.Snapshot, error) {
		n, err := c.createSnapshot(s, key, diskID, tags)
		if err != nil {
			return nil, fmt.Errorf("fake: create snapshot: %w", err)
		}
		return n.asked(), nil
	})
}

func (c *Cloud) createSnapshot(s *state, key, diskID string, tags map[string]string) (*snapshot, error) {
	if key == "" {
		return nil, fmt.Errorf("%w: the key is empty", provider.ErrInvalidArgument)
	}
	if n := s.snapshotByKey(key); n != nil {
		if n.DiskID != diskID {
			return nil, fmt.Errorf("%w: snapshot %s of the same key is of disk %s", provider.ErrAlreadyExists, n.ID, n.DiskID)
		}
		return n, nil
	}
	d, err := s.disk(diskID)
	if err != nil {
		return nil, err
	}
	unready := c.options.Disks.SnapshotGets
	return c.addSnapshot(s, &snapshot{Data: slices.Clone(d.Data), Unready: unready, Snapshot: provider.Snapshot{
		Key: key, DiskID: diskID, Bytes: d.Bytes, Ready: unready == 0, Tags: maps.Clone(tags),
	}}), nil
}

// addSnapshot gives a snapshot its id and puts it into the cloud.
func (c *Cloud) addSnapshot(s *state, n *snapshot) *snapshot {
	s.Serial++
	n.ID, n.Created, n.Lists = fmt.Sprintf("snap-%06d", s.Serial), c.options.Now().UTC(), c.options.Eventual.Lists
	if s.Snapshots == nil {
		s.Snapshots = map[string]*snapshot{}
	}
	s.Snapshots[n.ID] = n
	s.Ledger = append(s.Ledger, Resource{ID: n.ID, Kind: KindSnapshot, Instance: n.ID, Key: n.Key, Tags: maps.Clone(n.Tags), Made: n.Created})
	return n
}

// GetSnapshot looks up one snapshot.
func (c *Cloud) GetSnapshot(ctx context.Context, snapshotID string) (*provider.Snapshot, error) {
	return answer(ctx, c, OpGetSnapshot, func(s *state) (*provider.Snapshot, error) {
		n := s.Snapshots[snapshotID]
		if n == nil {
			return nil, fmt.Errorf("fake: %w", noSnapshot(snapshotID))
		}
		return n.asked(), nil
	})
}

func noSnapshot(id string) error { return fmt.Errorf("snapshot %q: %w", id, provider.ErrNotFound) }

// ListSnapshots lists by tags, in the order the snapshots were taken.
func (c *Cloud) ListSnapshots(ctx context.Context, match map[string]string) ([]provider.Snapshot, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("fake: list snapshots: %w: no tags to match", provider.ErrInvalidArgument)
	}
	return answer(ctx, c, OpListSnapshots, func(s *state) (list []provider.Snapshot, err error) {
		for _, id := range slices.Sorted(maps.Keys(s.Snapshots)) {
			n := s.Snapshots[id]
			switch {
			case n.Key == "" || !provider.HasTags(n.Tags, match):
			case n.Lists > 0:
				n.Lists--
			default:
				list = append(list, n.copied())
			}
		}
		return list, nil
	})
}

// DeleteSnapshot removes a snapshot.
func (c *Cloud) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	if snapshotID == "" {
		return fmt.Errorf("fake: delete snapshot: %w: the id is empty", provider.ErrInvalidArgument)
	}
	_, err := answer(ctx, c, OpDeleteSnapshot, func(s *state) (struct{}, error) {
		n := s.Snapshots[snapshotID]
		if n != nil && n.Key == "" {
			return struct{}{}, fmt.Errorf("fake: delete snapshot %s: %w: CreateSnapshot did not make it", snapshotID, provider.ErrPermissionDenied)
		}
		c.dropSnapshot(s, snapshotID)
		return struct{}{}, nil
	})
	return err
}

func (c *Cloud) dropSnapshot(s *state, id string) {
	s.deleted(id, c.options.Now().UTC())
	delete(s.Snapshots, id)
}

func (s *state) snapshotByKey(key string) *snapshot {
	for _, n := range s.Snapshots {
		if n.Key == key {
			return n
		}
	}
	return nil
}
