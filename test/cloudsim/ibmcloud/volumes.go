// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// MaxDataDisks is how many volumes an instance can have besides its boot volume (page "Quotas and service limits").
const MaxDataDisks = 12

// volume is a boot volume or a data volume; only these have a name.
type volume struct {
	id, name, zone, profile, status string
	capacity                        int64
	created                         time.Time
	tags                            []string
	encrypted                       bool
	at                              *attachment
	// source is the snapshot of which it is, and restoring says that its data is still copied.
	source    string
	restoring bool
	content   []byte
	foreign   bool
}

// attachment is a volume's to an instance.
type attachment struct {
	id, instance, device, status string
	boot, auto                   bool
}

// volumeProfile is one of page "Block Storage for VPC profiles".
type volumeProfile struct {
	min, max, generation int64
	family               string
}

var volumeProfiles = map[string]volumeProfile{
	"general-purpose": {10, 16000, 1, "tiered"}, "5iops-tier": {10, 9600, 1, "tiered"}, "10iops-tier": {10, 4800, 1, "tiered"},
	"custom": {10, 16000, 1, "custom"}, "sdp": {1, 32000, 2, "defined_performance"},
}

func (v *volume) generation() int64 { return volumeProfiles[v.profile].generation }

func bootVolume(i *vm, tags []string) *volume {
	return &volume{
		id: i.boot, zone: i.zone, profile: "general-purpose", status: "available", capacity: 100, created: i.created, tags: tags,
		at: &attachment{id: "boot", instance: i.id, device: i.boot, status: "attached", boot: true, auto: true},
	}
}

// read reads a body with the SDK's own types. A field that the SDK does not know is lost on the way, which shows.
func read[T any](c *call, unmarshal func(map[string]json.RawMessage, any) error) (*T, error) {
	text, err := io.ReadAll(io.LimitReader(c.r.Body, 1<<20))
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	var proto *T
	if err == nil {
		err = unmarshal(fields, &proto)
	}
	if err == nil {
		err = core.ValidateStruct(proto, "prototype")
	}
	if err == nil {
		var sent, known any
		err = errors.Join(json.Unmarshal(text, &sent), json.Unmarshal([]byte(toJSON(proto)), &known), lost(c.name, sent, known))
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "bad_field", "%v", err)
	}
	return proto, nil
}

// checkVolumeName is for volumes and snapshots.
func checkVolumeName(name string, tags []string, taken func(string) bool) error {
	if !instanceName.MatchString(name) || len(name) > 63 {
		return refuse(http.StatusBadRequest, "bad_field", "name %q", name)
	}
	for _, tag := range tags {
		if !userTag.MatchString(tag) {
			return refuse(http.StatusBadRequest, "bad_field", "user tag %q", tag)
		}
	}
	if taken(name) {
		return refuse(http.StatusConflict, "validation_unique_failed", "Provided Name (%s) is not unique", name)
	}
	return nil
}

func (s *Sim) createVolume(c *call) (any, error) {
	proto, err := read[vpcv1.VolumePrototype](c, vpcv1.UnmarshalVolumePrototype)
	if err != nil {
		return nil, err
	}
	if err := s.need("is.volume.volume.create"); err != nil {
		return nil, err
	}
	v := &volume{
		id: fmt.Sprintf("r006-%08d-data", s.number()), name: text(proto, "name"), zone: text(proto, "zone", "name"), profile: text(proto, "profile", "name"),
		status: "pending", created: time.Now().UTC(), tags: proto.UserTags, encrypted: proto.EncryptionKey != nil, source: text(proto, "source_snapshot", "id"),
	}
	if proto.Capacity != nil {
		v.capacity = *proto.Capacity
	}
	profile, known := volumeProfiles[v.profile]
	switch {
	case !known:
		return nil, refuse(http.StatusBadRequest, "bad_field", "the provided volume profile does not exist")
	case !slices.Contains(Zones, v.zone):
		return nil, notFound("Zone", v.zone)
	case text(proto, "resource_group", "id") != "" && text(proto, "resource_group", "id") != ResourceGroup:
		return nil, notFound("Resource group", text(proto, "resource_group", "id"))
	}
	if v.source != "" {
		if err := s.restore(v); err != nil {
			return nil, err
		}
	}
	if v.capacity < profile.min || v.capacity > profile.max {
		return nil, refuse(http.StatusBadRequest, "volume_capacity_max", "capacity %d of profile %s", v.capacity, v.profile)
	}
	if err := checkVolumeName(v.name, v.tags, s.hasVolume); err != nil {
		return nil, err
	}
	s.volumes[v.id] = v
	s.World.Add(cloudsim.KindDisk, v.id, s.TagsOf(v.tags))
	if fault := s.World.Called(LateVolume); fault != nil && fault.Code != "" {
		s.later(func() { v.status = "failed" })
		return s.showVolume(v), nil
	}
	s.later(func() {
		if v.status = "available"; v.generation() == 2 {
			v.restoring = false
		}
	}, func() { v.restoring = v.restoring && s.holdRestores })
	return s.showVolume(v), nil
}

// LateVolume is the action under which the script finds volumes that fail after the cloud has accepted them.
const LateVolume = "late-volume"

// HoldRestores keeps volumes of the first generation from being restored to the end.
func (s *Sim) HoldRestores() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdRestores = true
}

func (s *Sim) hasVolume(name string) bool {
	for _, v := range s.volumes {
		if v.name == name {
			return true
		}
	}
	return false
}

// restore fills a volume from its snapshot (page "Restoring a volume from a snapshot").
func (s *Sim) restore(v *volume) error {
	if err := s.need("is.snapshot.snapshot.operate"); err != nil {
		return err
	}
	from := s.snapshots[v.source]
	switch {
	case from == nil:
		return notFound("Snapshot", v.source)
	case from.state != "stable":
		return refuse(http.StatusConflict, "invalid_state", "Snapshot %s is %s", from.id, from.state)
	case from.generation != v.generation():
		return refuse(http.StatusBadRequest, "bad_field", "storage_generation of snapshot %s is %d", from.id, from.generation)
	case from.encrypted && !v.encrypted, v.encrypted && !from.encrypted && from.generation == 2:
		return refuse(http.StatusBadRequest, "bad_field", "encryption is another than that of snapshot %s", from.id)
	}
	if v.capacity == 0 {
		v.capacity = from.capacity
	}
	if v.capacity < from.capacity {
		return refuse(http.StatusBadRequest, "bad_field", "capacity is less than %d", from.capacity)
	}
	v.restoring, v.content = true, slices.Clone(from.content)
	return nil
}

func (s *Sim) listVolumes(c *call) (any, error) {
	if err := s.need("is.volume.volume.list"); err != nil {
		return nil, err
	}
	var ids []string
	for id, v := range s.volumes {
		tag, name := c.query.Get("tag"), c.query.Get("name")
		if (tag == "" || slices.Contains(v.tags, tag)) && (name == "" || v.name == name) && (v.foreign || s.World.Visible(cloudsim.KindDisk, id)) {
			ids = append(ids, id)
		}
	}
	return s.page(c, "volumes", ids, func(id string) any { return s.showVolume(s.volumes[id]) }), nil
}

func (s *Sim) getVolume(c *call) (any, error) {
	if err := s.need("is.volume.volume.read"); err != nil {
		return nil, err
	}
	v := s.volumes[c.id]
	if v == nil {
		return nil, notFound("Volume", c.id)
	}
	return s.showVolume(v), nil
}

func (s *Sim) deleteVolume(c *call) (any, error) {
	if err := s.need("is.volume.volume.delete"); err != nil {
		return nil, err
	}
	v := s.volumes[c.id]
	switch {
	case v == nil:
		return nil, notFound("Volume", c.id)
	case v.at != nil:
		return nil, refuse(http.StatusConflict, "volume_still_attached", "Volume %s is attached", c.id)
	case v.status == "pending", v.status == "updating", v.status == "pending_deletion", s.busy(v), s.filling(v):
		return nil, refuse(http.StatusConflict, "invalid_state", "Volume %s is %s or busy", c.id, v.status)
	}
	if v.name == "" {
		s.dropVolume(v)
		return nil, nil
	}
	v.status = "pending_deletion"
	s.World.Deleting(cloudsim.KindDisk, v.id)
	s.later(func() { s.dropVolume(v) })
	return nil, nil
}

func (s *Sim) dropVolume(v *volume) {
	delete(s.volumes, v.id)
	s.World.Remove(cloudsim.KindDisk, v.id)
}

func (s *Sim) updateVolume(c *call) (any, error) {
	if err := s.need("is.volume.volume.update"); err != nil {
		return nil, err
	}
	var patch struct {
		Capacity int64 `json:"capacity"`
	}
	if err := strict(c.r, &patch); err != nil {
		return nil, refuse(http.StatusBadRequest, "bad_field", "%v", err)
	}
	v := s.volumes[c.id]
	switch {
	case v == nil:
		return nil, notFound("Volume", c.id)
	case v.status != "available", s.busy(v):
		return nil, refuse(http.StatusConflict, "invalid_state", "Volume %s is %s or busy", c.id, v.status)
	case v.generation() == 1 && !s.active(v):
		return nil, refuse(http.StatusBadRequest, "volume_not_attached", "Volume %s is not attached to a running instance", c.id)
	case patch.Capacity < v.capacity, patch.Capacity > volumeProfiles[v.profile].max:
		return nil, refuse(http.StatusBadRequest, "volume_capacity_max", "capacity %d", patch.Capacity)
	}
	v.status = "updating"
	s.later(func() { v.status, v.capacity = "available", patch.Capacity })
	return s.showVolume(v), nil
}

// active reports whether an instance that runs has a volume.
func (s *Sim) active(v *volume) bool {
	return v.at != nil && s.instances[v.at.instance] != nil && s.instances[v.at.instance].status == "running"
}

// busy reports whether a snapshot is taken of a volume.
func (s *Sim) busy(v *volume) bool {
	for _, one := range s.snapshots {
		if one.volume == v.id && one.state == "pending" {
			return true
		}
	}
	return false
}

// filling reports whether another volume is restored from a snapshot of a volume.
func (s *Sim) filling(v *volume) bool {
	for _, other := range s.volumes {
		if from := s.snapshots[other.source]; from != nil && from.volume == v.id && other.restoring {
			return true
		}
	}
	return false
}

func (s *Sim) showVolume(v *volume) any {
	attachments, state := []any{}, "unattached"
	if v.at != nil && s.instances[v.at.instance] != nil {
		i := s.instances[v.at.instance]
		one := s.showAttachment(v).(map[string]any)
		one["instance"] = map[string]any{"id": i.id, "name": i.name, "crn": "crn:v1", "href": s.Server.URL, "resource_type": "instance"}
		attachments, state = append(attachments, one), "attached"
	}
	shown := map[string]any{
		"id": v.id, "name": cmp.Or(v.name, v.id), "created_at": stamp(v.created), "user_tags": v.tags, "volume_attachments": attachments, "status": v.status,
		"href": s.Server.URL, "crn": "crn:v1", "resource_type": "volume", "active": s.active(v), "attachment_state": state, "busy": s.busy(v), "capacity": v.capacity,
		"storage_generation": v.generation(), "status_reasons": []any{}, "zone": map[string]any{"name": v.zone, "href": s.Server.URL},
		"profile": map[string]any{"name": v.profile, "href": s.Server.URL, "resource_type": "volume_profile"},
	}
	if v.source != "" {
		shown["source_snapshot"] = map[string]any{"id": v.source, "name": v.source, "crn": "crn:v1", "href": s.Server.URL, "resource_type": "snapshot"}
	}
	return shown
}

func (s *Sim) showReference(volume, id string) any {
	return map[string]any{
		"id": id, "name": id, "href": s.Server.URL,
		"volume": map[string]any{"id": volume, "name": volume, "crn": "crn:v1", "href": s.Server.URL, "resource_type": "volume"},
	}
}

// showAttachment leaves out the device while the guest does not have it.
func (s *Sim) showAttachment(v *volume) any {
	kind := "data"
	if v.at.boot {
		kind = "boot"
	}
	shown := s.showReference(v.id, v.at.id).(map[string]any)
	shown["status"], shown["type"], shown["delete_volume_on_instance_delete"] = v.at.status, kind, v.at.auto
	if v.at.status == "attached" {
		shown["device"] = map[string]any{"id": v.at.device}
	}
	return shown
}

// getVolumeProfile needs no action: every account may read profiles.
func (s *Sim) getVolumeProfile(c *call) (any, error) {
	p, ok := volumeProfiles[c.id]
	if !ok {
		return nil, notFound("Volume profile", c.id)
	}
	return map[string]any{
		"name": c.id, "href": s.Server.URL, "family": p.family, "storage_generation": map[string]any{"type": "fixed", "value": p.generation},
		"capacity": map[string]any{"type": "range", "min": p.min, "max": p.max, "step": 1, "default": max(p.min, 100)},
	}, nil
}
