// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"fmt"
	"net/http"
	"slices"
)

// attach is CreateInstanceVolumeAttachment, with a volume that exists.
func (s *Sim) attach(c *call) (any, error) {
	if err := s.need("is.instance.instance.update", "is.volume.volume.operate"); err != nil {
		return nil, err
	}
	var asked struct {
		Volume struct {
			ID string `json:"id"`
		} `json:"volume"`
		Auto bool `json:"delete_volume_on_instance_delete"`
	}
	if err := strict(c.r, &asked); err != nil {
		return nil, refuse(http.StatusBadRequest, "bad_field", "%v", err)
	}
	i, v := s.instances[c.id], s.volumes[asked.Volume.ID]
	has := 0
	for _, other := range s.volumes {
		if other.at != nil && !other.at.boot && other.at.instance == c.id {
			has++
		}
	}
	switch {
	case i == nil:
		return nil, notFound("Instance", c.id)
	case v == nil:
		return nil, notFound("Volume", asked.Volume.ID)
	case i.status != "running" && i.status != "stopped":
		return nil, refuse(http.StatusConflict, "instance_invalid_state", "Instance %s is %s", i.id, i.status)
	case v.zone != i.zone:
		return nil, refuse(http.StatusBadRequest, "bad_field", "volume %s is in zone %s", v.id, v.zone)
	case v.at != nil, v.status != "available", s.busy(v):
		return nil, refuse(http.StatusConflict, "invalid_state", "Volume %s is %s, attached or busy", v.id, v.status)
	case has >= MaxDataDisks:
		return nil, refuse(http.StatusBadRequest, "over_quota", "Instance %s has %d data volumes", i.id, has)
	}
	n := s.number()
	a := &attachment{id: fmt.Sprintf("%s-%08d-att", i.id[:4], n), instance: i.id, device: fmt.Sprintf("%s-%08d-0000-4000-8000-000000000000", i.id[:4], n), status: "attaching", auto: asked.Auto}
	v.at = a
	s.later(func() {
		if a.status == "attaching" {
			a.status = "attached"
		}
	})
	return s.showAttachment(v), nil
}

// attached returns the volume of an attachment.
func (s *Sim) attached(c *call) (*volume, error) {
	if s.instances[c.id] == nil {
		return nil, notFound("Instance", c.id)
	}
	for _, v := range s.volumes {
		if v.at != nil && v.at.instance == c.id && v.at.id == c.inner {
			return v, nil
		}
	}
	return nil, notFound("Volume attachment", c.inner)
}

func (s *Sim) getAttachment(c *call) (any, error) {
	if err := s.need("is.instance.instance.read"); err != nil {
		return nil, err
	}
	v, err := s.attached(c)
	if err != nil {
		return nil, err
	}
	return s.showAttachment(v), nil
}

func (s *Sim) detach(c *call) (any, error) {
	if err := s.need("is.instance.instance.update"); err != nil {
		return nil, err
	}
	v, err := s.attached(c)
	if err != nil {
		return nil, err
	}
	a := v.at
	switch {
	case a.boot:
		return nil, refuse(http.StatusConflict, "invalid_state", "Volume %s is the boot volume", v.id)
	case a.status == "attaching", s.busy(v), s.instances[c.id].status == "deleting":
		return nil, refuse(http.StatusConflict, "invalid_state", "Volume %s is busy", v.id)
	}
	a.status = "detaching"
	s.later(func() {
		if v.at == a {
			v.at = nil
		}
	})
	return nil, nil
}

// letVolumes detaches the volumes of an instance that is gone, or deletes them.
func (s *Sim) letVolumes(i *vm) {
	for _, v := range s.volumes {
		switch {
		case v.at == nil || v.at.instance != i.id || v.at.boot:
		case v.at.auto:
			s.dropVolume(v)
		default:
			v.at = nil
		}
	}
}

// SetAuto says that a volume is deleted with its instance, as its owner can.
func (s *Sim) SetAuto(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumes[id].at.auto = true
}

// Encrypted reports whether a volume has a key of the account.
func (s *Sim) Encrypted(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.volumes[id].encrypted
}

// ForeignDisk makes a disk of somebody else's and a snapshot of it, which have the tags of ours.
func (s *Sim) ForeignDisk(tags []string) (disk, snapshotID string, remove func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.number()
	v := &volume{id: fmt.Sprintf("r006-%08d-data", n), name: fmt.Sprintf("theirs-%d", n), zone: Zones[0], profile: "sdp", status: "available", capacity: 10, tags: tags, foreign: true}
	one := &snapshot{id: fmt.Sprintf("r006-%08d-snap", n), name: v.name, volume: v.id, capacity: 10, generation: 2, state: "stable", captured: true, tags: tags, foreign: true}
	s.volumes[v.id], s.snapshots[one.id] = v, one
	return v.id, one.id, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.volumes[v.id] == nil || s.snapshots[one.id] == nil {
			return fmt.Errorf("disk %s or snapshot %s is gone", v.id, one.id)
		}
		delete(s.volumes, v.id)
		delete(s.snapshots, one.id)
		return nil
	}
}

// WriteDisk writes the first bytes of a disk.
func (s *Sim) WriteDisk(id string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.volumes[id] == nil {
		return fmt.Errorf("no volume %s", id)
	}
	s.volumes[id].content = slices.Clone(data)
	return nil
}

// ReadDisk reads what WriteDisk has written to a disk, or to what it is a copy of.
func (s *Sim) ReadDisk(id string, bytes int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.volumes[id] == nil {
		return nil, fmt.Errorf("no volume %s", id)
	}
	return append(slices.Clone(s.volumes[id].content), make([]byte, bytes)...)[:bytes], nil
}
