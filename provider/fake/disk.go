// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// disk is one that is there, with what was written to it.
type disk struct {
	provider.Disk
	Data []byte `json:"data,omitempty"`
	// Lists counts down until lists show it.
	Lists int `json:"lists"`
}

// copied returns a copy that shares nothing with d.
func (d *disk) copied() *provider.Disk {
	c := d.Disk
	c.Tags = maps.Clone(d.Tags)
	return &c
}

// CreateDisk makes the disk of a key, or returns the one there is.
func (c *Cloud) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
	return answer(ctx, c, OpCreateDisk, func(s *state) (*provider.Disk, error) {
		d, err := c.createDisk(s, key, spec)
		if err != nil {
			return nil, fmt.Errorf("fake: create disk: %w", err)
		}
		return d.copied(), nil
	})
}

func (c *Cloud) createDisk(s *state, key string, spec provider.DiskSpec) (*disk, error) {
	if key == "" {
		return nil, fmt.Errorf("%w: the key is empty", provider.ErrInvalidArgument)
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if d := s.diskByKey(key); d != nil {
		if !spec.Fits(&d.Disk) {
			return nil, fmt.Errorf("%w: disk %s of the same key has %d bytes, type %s, zone %s", provider.ErrAlreadyExists, d.ID, d.Bytes, d.Type, d.Zone)
		}
		return d, nil
	}
	made, err := c.plan(s, spec)
	if err != nil {
		return nil, err
	}
	made.Key = key
	return c.addDisk(s, made), nil
}

// plan returns the disk that a spec asks for.
func (c *Cloud) plan(s *state, spec provider.DiskSpec) (*disk, error) {
	options := c.options.Disks
	kind, zone := cmp.Or(spec.Type, options.Types[0]), cmp.Or(spec.Zone, options.Zones[0])
	if !slices.Contains(options.Types, kind) {
		return nil, fmt.Errorf("%w: no disks of the type %q, but of %q", provider.ErrInvalidArgument, kind, options.Types)
	}
	if !slices.Contains(options.Zones, zone) {
		return nil, fmt.Errorf("%w: no zone %q, but %q", provider.ErrInvalidArgument, zone, options.Zones)
	}
	least, data, err := s.source(spec)
	if err != nil {
		return nil, err
	}
	wanted := cmp.Or(spec.Bytes, least)
	if wanted < least {
		return nil, fmt.Errorf("%w: %d bytes for a copy of %d", provider.ErrInvalidArgument, wanted, least)
	}
	bytes, err := options.round(wanted)
	if err != nil {
		return nil, err
	}
	if spec.Limit != 0 && bytes > spec.Limit {
		return nil, fmt.Errorf("%w: the least disk for %d bytes has %d, which is more than the limit of %d", provider.ErrInvalidArgument, wanted, bytes, spec.Limit)
	}
	return &disk{Data: slices.Clone(data), Disk: provider.Disk{
		Bytes: bytes, Type: kind, Zone: zone, FromSnapshot: spec.FromSnapshot, FromDisk: spec.FromDisk, Tags: maps.Clone(spec.Tags),
	}}, nil
}

// source returns the size and content of what a disk is to be a copy of.
func (s *state) source(spec provider.DiskSpec) (int64, []byte, error) {
	switch {
	case spec.FromSnapshot != "":
		from := s.Snapshots[spec.FromSnapshot]
		if from == nil {
			return 0, nil, noSnapshot(spec.FromSnapshot)
		}
		if !from.Ready {
			return 0, nil, fmt.Errorf("%w: snapshot %s is not ready", provider.ErrUnavailable, from.ID)
		}
		return from.Bytes, from.Data, nil
	case spec.FromDisk != "":
		from, err := s.disk(spec.FromDisk)
		if err != nil {
			return 0, nil, err
		}
		return from.Bytes, from.Data, nil
	}
	return 0, nil, nil
}

// addDisk gives a disk its id and puts it into the cloud.
func (c *Cloud) addDisk(s *state, d *disk) *disk {
	s.Serial++
	d.ID, d.Created, d.Lists = fmt.Sprintf("disk-%06d", s.Serial), c.options.Now().UTC(), c.options.Eventual.Lists
	if s.Disks == nil {
		s.Disks = map[string]*disk{}
	}
	s.Disks[d.ID] = d
	s.Ledger = append(s.Ledger, Resource{ID: d.ID, Kind: KindDataDisk, Instance: d.ID, Key: d.Key, Tags: maps.Clone(d.Tags), Made: d.Created})
	return d
}

// GetDisk looks up one disk.
func (c *Cloud) GetDisk(ctx context.Context, diskID string) (*provider.Disk, error) {
	return answer(ctx, c, OpGetDisk, func(s *state) (*provider.Disk, error) {
		d, err := s.disk(diskID)
		if err != nil {
			return nil, fmt.Errorf("fake: %w", err)
		}
		return d.copied(), nil
	})
}

// ListDisks lists by tags, in the order the disks were made.
func (c *Cloud) ListDisks(ctx context.Context, match map[string]string) ([]provider.Disk, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("fake: list disks: %w: no tags to match", provider.ErrInvalidArgument)
	}
	return answer(ctx, c, OpListDisks, func(s *state) (list []provider.Disk, err error) {
		for _, id := range slices.Sorted(maps.Keys(s.Disks)) {
			d := s.Disks[id]
			switch {
			case d.Key == "" || !provider.HasTags(d.Tags, match):
			case d.Lists > 0:
				d.Lists--
			default:
				list = append(list, *d.copied())
			}
		}
		return list, nil
	})
}

// DeleteDisk removes a disk that no instance has.
func (c *Cloud) DeleteDisk(ctx context.Context, diskID string) error {
	if diskID == "" {
		return fmt.Errorf("fake: delete disk: %w: the id is empty", provider.ErrInvalidArgument)
	}
	_, err := answer(ctx, c, OpDeleteDisk, func(s *state) (none struct{}, err error) {
		d := s.Disks[diskID]
		switch {
		case d == nil:
			return none, nil
		case d.Key == "":
			return none, fmt.Errorf("fake: delete disk %s: %w: CreateDisk did not make it", diskID, provider.ErrPermissionDenied)
		case d.InstanceID != "":
			return none, fmt.Errorf("fake: delete disk %s: %w: instance %s has it", diskID, provider.ErrInUse, d.InstanceID)
		}
		c.dropDisk(s, diskID)
		return none, nil
	})
	return err
}

func (c *Cloud) dropDisk(s *state, id string) {
	s.deleted(id, c.options.Now().UTC())
	delete(s.Disks, id)
}

// ResizeDisk makes a disk larger, up to the next unit.
func (c *Cloud) ResizeDisk(ctx context.Context, diskID string, bytes int64) (*provider.Disk, error) {
	return answer(ctx, c, OpResizeDisk, func(s *state) (*provider.Disk, error) {
		d, err := s.disk(diskID)
		if err != nil {
			return nil, fmt.Errorf("fake: resize: %w", err)
		}
		rounded, err := c.options.Disks.round(bytes)
		if err != nil {
			return nil, fmt.Errorf("fake: resize disk %s: %w", diskID, err)
		}
		d.Bytes = max(d.Bytes, rounded)
		return d.copied(), nil
	})
}

// disk returns the one of an id, or ErrNotFound.
func (s *state) disk(id string) (*disk, error) {
	if d := s.Disks[id]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("disk %q: %w", id, provider.ErrNotFound)
}

func (s *state) diskByKey(key string) *disk {
	for _, d := range s.Disks {
		if d.Key == key {
			return d
		}
	}
	return nil
}
