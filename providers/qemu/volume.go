// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// volume is disk.json or snapshot.json: the record of a disk or a snapshot. Its image
// is beside it.
type volume struct {
	ID   string `json:"id"`
	Key  string `json:"key"`
	Name string `json:"name,omitempty"`
	// Bytes is the size of the image. A disk whose image is larger was being resized by
	// a process that was killed.
	Bytes int64 `json:"bytes"`
	// FromSnapshot and FromDisk are what it is a copy of; a snapshot has FromDisk.
	FromSnapshot string            `json:"fromSnapshot,omitempty"`
	FromDisk     string            `json:"fromDisk,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	Created      time.Time         `json:"created"`
	// Phase is phaseMaking or phaseReady.
	Phase phase `json:"phase"`
	// Instance is the instance that has the disk. It is set before QEMU is asked to
	// attach it, and removed when QEMU has let it go.
	Instance string `json:"instance,omitempty"`
}

func (v *volume) disk() *provider.Disk {
	return &provider.Disk{
		ID: v.ID, Key: v.Key, Bytes: v.Bytes, FromSnapshot: v.FromSnapshot, FromDisk: v.FromDisk,
		InstanceID: v.Instance, Tags: v.Tags, Created: v.Created,
	}
}

func (v *volume) snapshot() *provider.Snapshot {
	return &provider.Snapshot{
		ID: v.ID, Key: v.Key, DiskID: v.FromDisk, Bytes: v.Bytes, Ready: v.Phase == phaseReady,
		Tags: v.Tags, Created: v.Created,
	}
}

func (v *volume) names() (id, key *string) { return &v.ID, &v.Key }

// newID returns the id of a new disk or snapshot. It is the serial number of a disk too:
// those of SCSI and virtio disks have at most 20 characters.
func newID(kind string) string {
	random := make([]byte, 8)
	rand.Read(random)
	return kind[:4] + "-" + hex.EncodeToString(random)[:15]
}

// ready returns ErrUnavailable for a volume that is being made.
func ready(s records[*volume], id string) (*volume, error) {
	v, err := s.existing(id)
	if err == nil && v.Phase != phaseReady {
		err = fmt.Errorf("%w: %s %s is being made", provider.ErrUnavailable, s.kind, id)
	}
	return v, err
}

// matching returns the volumes whose tags include all of match.
func matching(s records[*volume], match map[string]string) ([]*volume, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: list %ss: no tags to match", provider.ErrInvalidArgument, s.kind)
	}
	all, err := s.list()
	if err != nil {
		return nil, classify(err)
	}
	var list []*volume
	for _, v := range all {
		if provider.HasTags(v.Tags, match) {
			list = append(list, v)
		}
	}
	return list, nil
}
