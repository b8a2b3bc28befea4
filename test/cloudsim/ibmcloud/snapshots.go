// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"
)

// KindSnapshot is that of snapshots in the books.
const KindSnapshot = "snapshot"

// snapshot is one of a volume.
type snapshot struct {
	id, name, volume, state string
	capacity, generation    int64
	created                 time.Time
	tags                    []string
	encrypted, captured     bool
	content                 []byte
	foreign                 bool
}

func (s *Sim) createSnapshot(c *call) (any, error) {
	proto, err := read[vpcv1.SnapshotPrototypeSnapshotBySourceVolume](c, vpcv1.UnmarshalSnapshotPrototypeSnapshotBySourceVolume)
	if err != nil {
		return nil, err
	}
	if err := s.need("is.snapshot.snapshot.create", "is.volume.volume.operate"); err != nil {
		return nil, err
	}
	v := s.volumes[text(proto, "source_volume", "id")]
	switch {
	case v == nil:
		return nil, notFound("Volume", text(proto, "source_volume", "id"))
	case v.status != "available", s.busy(v), v.restoring: // which makes it degraded
		return nil, refuse(http.StatusConflict, "snapshots_source_volume_busy", "Volume %s is locked", v.id)
	case v.generation() == 1 && !s.active(v):
		return nil, refuse(http.StatusBadRequest, "volume_not_attached", "Volume %s is not attached to a running instance", v.id)
	}
	one := &snapshot{
		id: fmt.Sprintf("r006-%08d-snap", s.number()), name: text(proto, "name"), volume: v.id, state: "pending", capacity: v.capacity, generation: v.generation(),
		created: time.Now().UTC(), tags: proto.UserTags, encrypted: v.encrypted,
	}
	if err := checkVolumeName(one.name, one.tags, s.hasSnapshot); err != nil {
		return nil, err
	}
	s.snapshots[one.id] = one
	s.World.Add(KindSnapshot, one.id, s.TagsOf(one.tags))
	s.later(func() { one.captured, one.content = true, slices.Clone(v.content) }, func() {
		if one.state == "pending" {
			one.state = "stable"
		}
	})
	return s.showSnapshot(one), nil
}

func (s *Sim) hasSnapshot(name string) bool {
	for _, one := range s.snapshots {
		if one.name == name {
			return true
		}
	}
	return false
}

func (s *Sim) listSnapshots(c *call) (any, error) {
	if err := s.need("is.snapshot.snapshot.list"); err != nil {
		return nil, err
	}
	var ids []string
	for id, one := range s.snapshots {
		tag, name := c.query.Get("tag"), c.query.Get("name")
		if (tag == "" || slices.Contains(one.tags, tag)) && (name == "" || one.name == name) && (one.foreign || s.World.Visible(KindSnapshot, id)) {
			ids = append(ids, id)
		}
	}
	return s.page(c, "snapshots", ids, func(id string) any { return s.showSnapshot(s.snapshots[id]) }), nil
}

func (s *Sim) getSnapshot(c *call) (any, error) {
	if err := s.need("is.snapshot.snapshot.read"); err != nil {
		return nil, err
	}
	if s.snapshots[c.id] == nil {
		return nil, notFound("Snapshot", c.id)
	}
	return s.showSnapshot(s.snapshots[c.id]), nil
}

// deleteSnapshot refuses while a volume is restored from it (page "About Block Storage snapshots").
func (s *Sim) deleteSnapshot(c *call) (any, error) {
	if err := s.need("is.snapshot.snapshot.delete"); err != nil {
		return nil, err
	}
	one := s.snapshots[c.id]
	switch {
	case one == nil:
		return nil, notFound("Snapshot", c.id)
	case one.state != "stable" && one.state != "pending":
		return nil, refuse(http.StatusConflict, "invalid_state", "Snapshot %s is %s", c.id, one.state)
	}
	for _, v := range s.volumes {
		if v.source == one.id && v.restoring {
			return nil, refuse(http.StatusConflict, "invalid_state", "Volume %s is restored from snapshot %s", v.id, c.id)
		}
	}
	one.state = "deleting"
	s.World.Deleting(KindSnapshot, one.id)
	s.later(func() {
		delete(s.snapshots, one.id)
		s.World.Remove(KindSnapshot, one.id)
	})
	return nil, nil
}

func (s *Sim) showSnapshot(one *snapshot) any {
	shown := map[string]any{
		"id": one.id, "name": one.name, "created_at": stamp(one.created), "user_tags": one.tags, "lifecycle_state": one.state, "minimum_capacity": one.capacity,
		"size": one.capacity, "storage_generation": one.generation, "href": s.Server.URL, "crn": "crn:v1", "resource_type": "snapshot", "bootable": false,
		"source_volume": map[string]any{"id": one.volume, "name": one.volume, "crn": "crn:v1", "href": s.Server.URL, "resource_type": "volume"},
	}
	if one.captured {
		shown["captured_at"] = stamp(one.created)
	}
	return shown
}
