// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider"
)

const (
	// diskUnit is what sizes of disks are multiples of.
	diskUnit = 1 << 20
	// maxDiskBytes is the largest file of ext4 with blocks of 4 KiB, less one unit: 16 TiB is
	// one byte too large.
	maxDiskBytes = 16<<40 - diskUnit
)

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
	if err := checkDisk(spec); err != nil {
		return nil, fmt.Errorf("create disk: %w", err)
	}
	v, err := p.makeOnce(ctx, p.store.disks(), key, &maker{
		fits: func(v *volume) bool { return spec.Fits(v.disk()) },
		plan: func() (*volume, error) { return p.planDisk(key, spec) },
		fill: p.fillDisk,
	})
	if err != nil {
		return nil, fmt.Errorf("create disk: %w", err)
	}
	return v.disk(), nil
}

// checkDisk names what this provider has not got.
func checkDisk(spec provider.DiskSpec) error {
	switch {
	case spec.Type != "":
		return fmt.Errorf("%w: type %q: this provider has no types of disks", provider.ErrInvalidArgument, spec.Type)
	case spec.Zone != "":
		return fmt.Errorf("%w: zone %q: this provider has no zones", provider.ErrInvalidArgument, spec.Zone)
	}
	return spec.Check()
}

// planDisk decides everything about a disk before anything of it exists.
func (p *Provider) planDisk(key string, spec provider.DiskSpec) (*volume, error) {
	bytes := spec.Bytes
	if source, err := p.sourceOf(spec.FromSnapshot, spec.FromDisk); err != nil {
		return nil, err
	} else if source != nil && bytes == 0 {
		bytes = source.Bytes
	} else if source != nil && bytes < source.Bytes {
		return nil, fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, bytes, source.ID, source.Bytes)
	}
	bytes, err := roundSize(bytes, spec.Limit)
	return &volume{
		Key: key, Name: spec.Name, Bytes: bytes, FromSnapshot: spec.FromSnapshot, FromDisk: spec.FromDisk,
		Tags: maps.Clone(spec.Tags),
	}, err
}

// sourceOf returns what a disk is to be a copy of, or nil.
func (p *Provider) sourceOf(snapshotID, diskID string) (*volume, error) {
	switch {
	case snapshotID != "":
		return ready(p.store.snapshots(), snapshotID)
	case diskID != "":
		return ready(p.store.disks(), diskID)
	}
	return nil, nil
}

// roundSize returns the least size of a disk that has so many bytes; a limit of 0 is none.
func roundSize(bytes, limit int64) (int64, error) {
	if bytes > maxDiskBytes {
		return 0, fmt.Errorf("%w: a disk of %d bytes: there are none of more than %d", provider.ErrInvalidArgument, bytes, int64(maxDiskBytes))
	}
	size := (bytes + diskUnit - 1) / diskUnit * diskUnit
	if limit != 0 && size > limit {
		return 0, fmt.Errorf("%w: a disk of %d bytes has %d, which is more than its limit of %d", provider.ErrInvalidArgument, bytes, size, limit)
	}
	return size, nil
}

// fillDisk makes the image of a planned disk.
func (p *Provider) fillDisk(ctx context.Context, v *volume) error {
	to := p.store.disks().image(v.ID)
	var err error
	switch {
	case v.FromSnapshot != "":
		err = p.copySnapshot(ctx, v.FromSnapshot, to)
	case v.FromDisk != "":
		err = p.copyDisk(ctx, v, to)
	default:
		err = createFile(to)
	}
	if err != nil {
		return err
	}
	return errors.Join(growFile(to, v.Bytes), statefile.SyncFolder(filepath.Dir(to)))
}

// growFile makes a file at least so large, and durable.
func growFile(path string, bytes int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.Size() < bytes {
		err = file.Truncate(bytes)
	}
	if err != nil {
		return err
	}
	return file.Sync()
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (*provider.Disk, error) {
	v, err := p.store.disks().existing(diskID)
	if err != nil {
		return nil, classify(err)
	}
	return v.disk(), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) ([]provider.Disk, error) {
	volumes, err := matching(p.store.disks(), match)
	if err != nil {
		return nil, err
	}
	var list []provider.Disk
	for _, v := range volumes {
		list = append(list, *v.disk())
	}
	return list, nil
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) error {
	return p.deleteVolume(ctx, p.store.disks(), diskID)
}

// maker makes the volume of a key.
type maker struct {
	// fits reports whether the one that is there is what is asked for.
	fits func(*volume) bool
	// plan decides what it is to be, and fill makes the image.
	plan func() (*volume, error)
	fill func(context.Context, *volume) error
}

// makeOnce returns the volume of a key, which it makes if there is none.
func (p *Provider) makeOnce(ctx context.Context, s records[*volume], key string, m *maker) (*volume, error) {
	lock, err := statefile.Acquire(ctx, s.lockPath(key))
	if err != nil {
		return nil, classify(err)
	}
	v, err := p.findOrFill(ctx, s, key, m)
	if v == nil {
		lock.ReleaseAndRemove()
		p.store.tidy()
		return nil, classify(err)
	}
	lock.Release()
	return v, classify(err)
}

// findOrFill returns a record, also beside an error, when one is on disk.
func (p *Provider) findOrFill(ctx context.Context, s records[*volume], key string, m *maker) (*volume, error) {
	v, err := s.byKey(key)
	if err != nil {
		return nil, err
	}
	if v != nil && v.Phase == phaseReady {
		if !m.fits(v) {
			err = fmt.Errorf("%w: %s %s of the same key has %d bytes, snapshot %q, disk %q", provider.ErrAlreadyExists, s.kind, v.ID, v.Bytes, v.FromSnapshot, v.FromDisk)
		}
		return v, err
	}
	if v != nil {
		// Its maker was killed, else it would hold the lock. Nobody was told its id.
		p.cfg.log().Info("removing a partly created "+s.kind, s.kind, v.ID)
		if err := p.dropVolume(ctx, s, v); err != nil {
			return v, fmt.Errorf("remove partly created %s: %w", v.ID, err)
		}
	}
	if v, err = m.plan(); err != nil {
		return nil, err
	}
	v.Phase, v.Created = phaseMaking, now()
	if err := s.claim(v, newID(s.kind)); err != nil {
		return nil, err
	}
	if err := m.fill(ctx, v); err != nil {
		return p.undoVolume(ctx, s, v, fmt.Errorf("%s: %w", v.ID, err))
	}
	v.Phase, v.Created = phaseReady, now()
	if err := s.save(v); err != nil {
		return p.undoVolume(ctx, s, v, err)
	}
	return v, nil
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

func (p *Provider) undoVolume(ctx context.Context, s records[*volume], v *volume, cause error) (*volume, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	if err := p.dropVolume(ctx, s, v); err != nil {
		return v, errors.Join(cause, fmt.Errorf("remove what was made: %w", err))
	}
	return nil, cause
}

// deleteVolume removes a disk or a snapshot in whatever state it is.
func (p *Provider) deleteVolume(ctx context.Context, s records[*volume], id string) error {
	v, err := s.load(id)
	if err != nil || v == nil {
		return classify(err)
	}
	lock, err := statefile.Acquire(ctx, s.lockPath(v.Key))
	if err != nil {
		return classify(fmt.Errorf("delete %s %s: %w", s.kind, id, err))
	}
	if v, err = s.load(id); err == nil && v != nil {
		if v.Instance != "" {
			err = fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.Instance)
		} else {
			err = p.dropVolume(ctx, s, v)
		}
	}
	if err != nil {
		lock.Release()
		return classify(fmt.Errorf("delete %s %s: %w", s.kind, id, err))
	}
	lock.ReleaseAndRemove()
	p.store.tidy()
	return nil
}

// dropVolume removes a volume that nobody else works on. A QEMU may still write to one
// whose maker was killed.
func (p *Provider) dropVolume(ctx context.Context, s records[*volume], v *volume) error {
	if v.Phase != phaseReady && v.FromDisk != "" {
		if err := p.endCopies(ctx, v.FromDisk); err != nil && !errors.Is(err, provider.ErrNotFound) {
			return err
		}
	}
	return s.remove(v.ID)
}
