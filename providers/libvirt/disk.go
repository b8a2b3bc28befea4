// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/outrigger/outrigger/provider"
)

var (
	_ provider.DiskController  = (*Provider)(nil)
	_ provider.DiskSnapshotter = (*Provider)(nil)
)

const (
	// diskUnit is what sizes of disks are multiples of.
	diskUnit = 1 << 20
	// maxDiskBytes is the largest file of ext4 with blocks of 4 KiB, less one unit.
	maxDiskBytes = 16<<40 - diskUnit
)

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
	v, err := p.makeOnce(ctx, kindDisk, key, spec)
	if err != nil {
		return nil, classify(fmt.Errorf("create disk: %w", err))
	}
	return v.disk(""), nil
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

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (*provider.Disk, error) {
	v, err := p.existingVolume(ctx, kindDisk, diskID)
	if err != nil {
		return nil, classify(fmt.Errorf("get disk: %w", err))
	}
	domains, err := p.domainDisks(ctx)
	if err != nil {
		return nil, classify(fmt.Errorf("get disk %s: %w", diskID, err))
	}
	return v.disk(holder(domains, v.path, "")), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) ([]provider.Disk, error) {
	volumes, err := p.matching(ctx, kindDisk, match)
	if err != nil || len(volumes) == 0 {
		return nil, classify(err)
	}
	domains, err := p.domainDisks(ctx)
	if err != nil {
		return nil, classify(fmt.Errorf("list disks: %w", err))
	}
	var list []provider.Disk
	for _, v := range volumes {
		list = append(list, *v.disk(holder(domains, v.path, "")))
	}
	return list, nil
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) error {
	return p.deleteVolume(ctx, kindDisk, diskID)
}

// ResizeDisk implements provider.DiskController.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (*provider.Disk, error) {
	size, err := roundSize(bytes, 0)
	var d *provider.Disk
	if err == nil {
		d, err = p.resize(ctx, diskID, size)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("resize disk %s: %w", diskID, err))
	}
	return d, nil
}

func (p *Provider) resize(ctx context.Context, diskID string, size int64) (*provider.Disk, error) {
	v, unlock, err := p.lockVolume(ctx, diskID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	domains, err := p.domainDisks(ctx)
	if err != nil {
		return nil, err
	}
	id := holder(domains, v.path, "")
	if v.bytes < size {
		if name := liveName(domains, v.path); name != "" {
			err = p.hv.resizeDisk(ctx, id, name, uint64(size))
		} else {
			err = p.grow(ctx, v, size)
		}
		v.bytes = size
	}
	return v.disk(id), poolError(p.cfg.Pool, err)
}

// grow makes a volume larger that no domain runs with; QEMU's lock keeps one from starting.
func (p *Provider) grow(ctx context.Context, v *volume, size int64) error {
	return whileBusy(ctx, func() error { return p.hv.resizeVolume(ctx, p.cfg.Pool, v.file, uint64(size)) })
}

// CreateSnapshot implements provider.DiskSnapshotter. It returns when the copy is complete.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (*provider.Snapshot, error) {
	v, err := p.makeOnce(ctx, kindSnapshot, key, provider.DiskSpec{FromDisk: diskID, Tags: tags})
	if err != nil {
		return nil, classify(fmt.Errorf("create snapshot: %w", err))
	}
	return v.snapshot(), nil
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (*provider.Snapshot, error) {
	v, err := p.existingVolume(ctx, kindSnapshot, snapshotID)
	if err != nil {
		return nil, classify(fmt.Errorf("get snapshot: %w", err))
	}
	return v.snapshot(), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) ([]provider.Snapshot, error) {
	volumes, err := p.matching(ctx, kindSnapshot, match)
	var list []provider.Snapshot
	for _, v := range volumes {
		list = append(list, *v.snapshot())
	}
	return list, classify(err)
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return p.deleteVolume(ctx, kindSnapshot, snapshotID)
}
