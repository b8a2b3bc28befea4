// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"maps"

	"github.com/outrigger/outrigger/provider"
)

// instanceZone is where instances are that ask for no zone.
const instanceZone = "fake-zone"

// DiskOptions configure the disks of a cloud. The zero value has all defaults.
type DiskOptions struct {
	// Zones are where disks and instances can be, the first being the disks' default; that
	// of instances is "fake-zone". An instance can have disks of its zone only. By default
	// there is also "fake-zone-b".
	Zones []string
	// Types are the kinds of disks, the first being the default: "standard" and "fast"
	// by default.
	Types []string
	// Unit is what sizes are a multiple of, in bytes; 1 GiB by default. Sizes that were
	// asked for are rounded up.
	Unit int64
	// Largest is the size of the largest disk in bytes; 64 TiB by default.
	Largest int64
	// PerInstance is how many disks an instance can have, after which attaching one gives
	// ErrCapacity; 0 means no limit.
	PerInstance int
	// SnapshotGets is how many look-ups of a new snapshot, also the one that takes it,
	// report that it is not ready.
	SnapshotGets int
}

func (o *DiskOptions) complete() error {
	if len(o.Zones) == 0 {
		o.Zones = []string{instanceZone, instanceZone + "-b"}
	}
	if len(o.Types) == 0 {
		o.Types = []string{"standard", "fast"}
	}
	if o.Unit == 0 {
		o.Unit = 1 << 30
	}
	if o.Largest == 0 {
		o.Largest = 64 << 40
	}
	if o.Unit < 0 || o.Largest < o.Unit || o.PerInstance < 0 || o.SnapshotGets < 0 {
		return fmt.Errorf("%w: sizes and limits of disks must not be negative, and the largest must not be less than the unit: %+v", provider.ErrInvalidArgument, *o)
	}
	return nil
}

// round returns the least size of a disk for so many bytes.
func (o *DiskOptions) round(bytes int64) (int64, error) {
	if bytes <= 0 || bytes > o.Largest {
		return 0, fmt.Errorf("%w: a disk of %d bytes: there are those of 1 to %d", provider.ErrInvalidArgument, bytes, o.Largest)
	}
	return min((bytes+o.Unit-1)/o.Unit*o.Unit, o.Largest), nil
}

// WriteDisk replaces the content of a disk, as its guest would. Snapshots and copies of the
// disk that are made later have it.
func (c *Cloud) WriteDisk(diskID string, data []byte) error {
	return c.store.update(func(s *state) error {
		d, err := s.disk(diskID)
		if err == nil {
			d.Data = append([]byte(nil), data...)
		}
		return err
	})
}

// ReadDisk returns the content of a disk.
func (c *Cloud) ReadDisk(diskID string) ([]byte, error) {
	var data []byte
	err := c.store.update(func(s *state) error {
		d, err := s.disk(diskID)
		if err == nil {
			data = append([]byte(nil), d.Data...)
		}
		return err
	})
	return data, err
}

// AddForeign adds a disk of the least size, and a snapshot of it, that are somebody
// else's, although they have the tags: CreateDisk and CreateSnapshot did not make them.
func (c *Cloud) AddForeign(tags map[string]string) (diskID, snapshotID string, err error) {
	err = c.store.update(func(s *state) error {
		d := c.addDisk(s, &disk{Disk: provider.Disk{
			Bytes: c.options.Disks.Unit, Type: c.options.Disks.Types[0], Zone: c.options.Disks.Zones[0], Tags: maps.Clone(tags),
		}})
		n := c.addSnapshot(s, &snapshot{Snapshot: provider.Snapshot{DiskID: d.ID, Bytes: d.Bytes, Ready: true, Tags: maps.Clone(tags)}})
		diskID, snapshotID = d.ID, n.ID
		return nil
	})
	return diskID, snapshotID, err
}

// RemoveForeign removes what AddForeign added.
func (c *Cloud) RemoveForeign(diskID, snapshotID string) error {
	return c.store.update(func(s *state) error {
		c.dropDisk(s, diskID)
		c.dropSnapshot(s, snapshotID)
		return nil
	})
}
