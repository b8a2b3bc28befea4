// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider"
)

// CreateSnapshot implements provider.DiskSnapshotter. It returns when the copy is complete.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (*provider.Snapshot, error) {
	s := p.store.snapshots()
	v, err := p.makeOnce(ctx, s, key, &maker{
		fits: func(v *volume) bool { return v.FromDisk == diskID },
		plan: func() (*volume, error) {
			source, err := ready(p.store.disks(), diskID)
			if err != nil {
				return nil, err
			}
			return &volume{Key: key, Bytes: source.Bytes, FromDisk: diskID, Tags: maps.Clone(tags)}, nil
		},
		fill: func(ctx context.Context, v *volume) error {
			to := s.image(v.ID)
			if err := p.copyDisk(ctx, v, to); err != nil {
				return err
			}
			return errors.Join(growFile(to, v.Bytes), statefile.SyncFolder(filepath.Dir(to)))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	return v.snapshot(), nil
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (*provider.Snapshot, error) {
	v, err := p.store.snapshots().existing(snapshotID)
	if err != nil {
		return nil, classify(err)
	}
	return v.snapshot(), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) ([]provider.Snapshot, error) {
	volumes, err := matching(p.store.snapshots(), match)
	if err != nil {
		return nil, err
	}
	var list []provider.Snapshot
	for _, v := range volumes {
		list = append(list, *v.snapshot())
	}
	return list, nil
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return p.deleteVolume(ctx, p.store.snapshots(), snapshotID)
}
