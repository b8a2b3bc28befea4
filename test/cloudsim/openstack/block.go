// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Cinder, as its API reference has it (Block Storage API v3: "Create a volume", "Extend a
// volume size", "Delete a volume") and its sources check it (cinder/api/schemas/volumes.py,
// cinder/volume/flows/api/create_volume.py, cinder/volume/api.py), and the attachments of Nova
// (Compute API, "Servers with volume attachments").

// DefaultVolumeType is the type of volumes that ask for none.
const DefaultVolumeType = "__DEFAULT__"

type volume struct {
	ID, Name, Zone, Type, Status string
	Size                         int
	Metadata                     map[string]string
	source, server               string
	created                      time.Time
}

const v3 = "/volume/v3/" + ProjectID + "/"

func (v *volume) json() map[string]any {
	attachments := []map[string]any{}
	if v.server != "" {
		attachments = append(attachments, map[string]any{"id": v.ID, "volume_id": v.ID, "attachment_id": newID(), "server_id": v.server, "device": "/dev/vdb", "host_name": nil, "attached_at": fixedStamp[:19] + ".000000"})
	}
	body := map[string]any{
		"id": v.ID, "name": v.Name, "status": v.Status, "size": v.Size, "availability_zone": v.Zone, "volume_type": v.Type, "metadata": v.Metadata,
		"attachments": attachments, "created_at": v.created.UTC().Format("2006-01-02T15:04:05.000000"), "updated_at": nil, "description": nil, "snapshot_id": nil,
		"source_volid": nil, "bootable": "false", "encrypted": false, "multiattach": false, "replication_status": nil, "consistencygroup_id": nil, "user_id": "u1",
	}
	if v.source != "" {
		body["source_volid"] = v.source
	}
	return body
}

func (c *Cloud) blockRoutes() {
	c.handle("POST "+v3+"volumes", "volume:create", nil, c.createVolume)
	c.handle("GET "+v3+"volumes/detail", "volume:get_all", []string{"name", "metadata", "limit", "marker"}, c.listVolumes)
	c.handle("GET "+v3+"volumes/{id}", "volume:get", nil, func(k *call) {
		if v := c.volumeOf(k); v != nil {
			k.answer(http.StatusOK, map[string]any{"volume": v.json()})
		}
	})
	c.handle("DELETE "+v3+"volumes/{id}", "volume:delete", nil, c.deleteVolume)
	c.handle("POST "+v3+"volumes/{id}/action", "volume:extend", nil, c.extendVolume)
	const attachments = v2 + "servers/{id}/os-volume_attachments"
	c.handle("POST "+attachments, "os_compute_api:os-volumes-attachments:create", nil, c.attachVolume)
	c.handle("DELETE "+attachments+"/{volume}", "os_compute_api:os-volumes-attachments:delete", nil, c.detachVolume)
}

func (c *Cloud) volumeOf(k *call) *volume {
	if v := c.volumeNamed(k.r.PathValue("id")); v != nil {
		return v
	}
	k.fail(http.StatusNotFound, "itemNotFound", "Volume "+k.r.PathValue("id")+" could not be found.")
	return nil
}

func (c *Cloud) volumeNamed(id string) *volume {
	if i := slices.IndexFunc(c.volumes, func(v *volume) bool { return v.ID == id }); i >= 0 {
		return c.volumes[i]
	}
	return nil
}

type newVolume struct {
	Volume struct {
		Name     string            `json:"name"`
		Size     *int              `json:"size"`
		Zone     string            `json:"availability_zone"`
		Type     string            `json:"volume_type"`
		Source   string            `json:"source_volid"`
		Metadata map[string]string `json:"metadata"`
	} `json:"volume"`
}

// problem returns what Cinder refuses at once, with its status.
func (n *newVolume) problem(source *volume) (int, string) {
	in := n.Volume
	for key, value := range in.Metadata { // cinder/api/validation/parameter_types.py, extra_specs
		if !metadataKey.MatchString(key) || len(value) > 255 {
			return 400, "Invalid input for field/attribute metadata. Value: " + key
		}
	}
	switch {
	case in.Source != "" && source == nil:
		return 404, "Volume " + in.Source + " could not be found."
	case in.Size == nil && source == nil:
		return 400, "Invalid input for field/attribute volume: 'size' is a required property"
	case in.Size != nil && (*in.Size < 1 || *in.Size > 1<<31-1):
		return 400, "Invalid input for field/attribute size"
	case in.Size != nil && *in.Size > 1000:
		return 413, "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes quota."
	case in.Size != nil && source != nil && *in.Size < source.Size:
		return 400, "Invalid input received: Volume size must be >= source volume size"
	case source != nil && source.Status != "available" && source.Status != "in-use":
		return 400, "Invalid volume: status must be available or in-use"
	case in.Type != "" && in.Type != VolumeType && in.Type != DefaultVolumeType:
		return 404, "Volume type with name " + in.Type + " could not be found."
	case in.Zone != "" && in.Zone != ZoneA && in.Zone != ZoneB && in.Zone != ZoneOfCinder:
		return 400, "Availability zone '" + in.Zone + "' is invalid."
	case len(in.Name) > 255:
		return 400, "Invalid input for field/attribute name"
	}
	return 0, ""
}

func (c *Cloud) createVolume(k *call) {
	var n newVolume
	if !k.read(&n) {
		return
	}
	in, source := n.Volume, c.volumeNamed(n.Volume.Source)
	if status, message := n.problem(source); status != 0 {
		k.fail(status, map[int]string{400: "badRequest", 404: "itemNotFound", 413: "overLimit"}[status], message)
		return
	}
	v := &volume{ID: newID(), Name: in.Name, Zone: in.Zone, Type: in.Type, Status: "creating", Metadata: in.Metadata, source: in.Source, created: time.Now()}
	if v.Zone == "" {
		v.Zone = ZoneA
	}
	if source != nil {
		v.Size, v.Zone = source.Size, source.Zone
	}
	if in.Size != nil {
		v.Size = *in.Size
	}
	if v.Type == "" {
		v.Type = DefaultVolumeType
	}
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	c.volumes = append(c.volumes, v)
	c.World.Add(cloudsim.KindDisk, v.ID, v.Metadata)
	c.laterVolume(v, "creating", func() { v.Status = "available" })
	k.answer(http.StatusAccepted, map[string]any{"volume": v.json()})
}

// laterVolume goes on after a while with a volume that is still in a status.
func (c *Cloud) laterVolume(v *volume, status string, do func()) {
	time.AfterFunc(step, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if v.Status == status {
			do()
		}
	})
}

// listVolumes filters by name, and by metadata, which is a dictionary in the notation of Python.
func (c *Cloud) listVolumes(k *call) {
	query, match := k.r.URL.Query(), map[string]string{}
	if text := query.Get("metadata"); text != "" {
		if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "'", `"`)), &match); err != nil {
			k.fail(http.StatusBadRequest, "badRequest", "Invalid filter metadata: "+text)
			return
		}
	}
	var list []*volume
	for _, v := range c.volumes {
		fits := query.Get("name") == "" || query.Get("name") == v.Name
		for key, value := range match {
			fits = fits && v.Metadata[key] == value
		}
		if fits {
			list = append(list, v)
		}
	}
	page(k, "volumes", list, func(v *volume) string { return v.ID }, (*volume).json)
}

func (c *Cloud) deleteVolume(k *call) {
	v := c.volumeOf(k)
	switch {
	case v == nil:
	case v.server != "" || v.Status != "available" && v.Status != "error":
		k.fail(http.StatusBadRequest, "badRequest", "Invalid volume: Volume status must be available or error or error_restoring or error_extending or error_managing and must not be migrating, attached, belong to a group, have snapshots or be disassociated from snapshots after volume transfer.")
	default:
		v.Status = "deleting"
		c.World.Deleting(cloudsim.KindDisk, v.ID)
		c.laterVolume(v, "deleting", func() { c.dropVolume(v) })
		k.answer(http.StatusAccepted, nil)
	}
}

func (c *Cloud) dropVolume(v *volume) {
	c.volumes = slices.DeleteFunc(c.volumes, func(other *volume) bool { return other == v })
	c.World.Remove(cloudsim.KindDisk, v.ID)
}

// extendVolume takes one that is in use from microversion 3.42 on.
func (c *Cloud) extendVolume(k *call) {
	var in struct {
		Extend *struct {
			Size int `json:"new_size"`
		} `json:"os-extend"`
	}
	if !k.read(&in) {
		return
	}
	v := c.volumeOf(k)
	switch was := ""; {
	case v == nil:
	case in.Extend == nil || in.Extend.Size < 1:
		k.fail(http.StatusBadRequest, "badRequest", "Invalid input for field/attribute new_size")
	case in.Extend.Size <= v.Size:
		k.fail(http.StatusBadRequest, "badRequest", "Invalid input received: New size for extend must be greater than current size.")
	case v.Status == "in-use" && k.r.Header.Get("OpenStack-API-Version") != "volume 3.42":
		k.fail(http.StatusBadRequest, "badRequest", "Invalid volume: Volume status must be '{'status': 'available'}' to extend")
	case v.Status != "available" && v.Status != "in-use":
		k.fail(http.StatusBadRequest, "badRequest", "Invalid volume: Volume status must be available or in-use to extend")
	default:
		was, v.Status = v.Status, "extending"
		c.laterVolume(v, "extending", func() { v.Status, v.Size = was, in.Extend.Size })
		k.answer(http.StatusAccepted, nil)
	}
}

// attachVolume keeps zones apart, as Nova does with cross_az_attach=False.
func (c *Cloud) attachVolume(k *call) {
	var in struct {
		Attachment struct {
			Volume string `json:"volumeId"`
		} `json:"volumeAttachment"`
	}
	if !k.read(&in) || !k.require(map[string]string{"volumeId": in.Attachment.Volume}) {
		return
	}
	s := c.serverOf(k)
	if s == nil {
		return
	}
	v := c.volumeNamed(in.Attachment.Volume)
	switch {
	case v == nil:
		k.fail(http.StatusNotFound, "itemNotFound", "Volume "+in.Attachment.Volume+" could not be found.")
	case s.Task != "" || s.Status != "ACTIVE" && s.Status != "SHUTOFF":
		k.fail(http.StatusConflict, "conflictingRequest", fmt.Sprintf("Cannot 'attach_volume' instance %s while it is in task_state %s", s.ID, s.Task))
	case v.Status != "available":
		k.fail(http.StatusBadRequest, "badRequest", "Invalid input received: Invalid volume: Volume "+v.ID+" status must be available or downloading to reserve, but the current status is "+v.Status+".")
	case s.Zone != "" && s.Zone != v.Zone && v.Zone != ZoneOfCinder:
		k.fail(http.StatusBadRequest, "badRequest", "Invalid volume: Instance "+s.ID+" and volume "+v.ID+" are not in the same availability_zone.")
	default:
		v.Status = "attaching"
		c.laterVolume(v, "attaching", func() {
			if v.Status = "available"; slices.Contains(c.servers, s) && s.Task != "deleting" {
				v.Status, v.server = "in-use", s.ID
			}
		})
		k.answer(http.StatusOK, map[string]any{"volumeAttachment": map[string]any{"id": v.ID, "volumeId": v.ID, "serverId": s.ID, "device": "/dev/vdb"}})
	}
}

func (c *Cloud) detachVolume(k *call) {
	s := c.serverOf(k)
	if s == nil {
		return
	}
	v := c.volumeNamed(k.r.PathValue("volume"))
	switch {
	case v == nil || v.server != s.ID:
		k.fail(http.StatusNotFound, "itemNotFound", "volume_id not found: "+k.r.PathValue("volume"))
	case v.Status != "in-use":
		k.fail(http.StatusBadRequest, "badRequest", "Invalid volume: Volume must be attached in order to detach.")
	default:
		v.Status = "detaching"
		c.laterVolume(v, "detaching", func() { v.Status, v.server = "available", "" })
		k.answer(http.StatusAccepted, nil)
	}
}

// freeVolumes detaches the volumes of a server that is gone.
func (c *Cloud) freeVolumes(s *server) {
	for _, v := range c.volumes {
		if v.server == s.ID {
			v.Status, v.server = "available", ""
		}
	}
}

// ForeignVolume makes a volume of somebody else's, who has the same tags, and returns a
// function that removes it.
func (c *Cloud) ForeignVolume(tags map[string]string) (id string, remove func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &volume{ID: newID(), Name: "somebody's", Zone: ZoneA, Type: VolumeType, Status: "available", Size: 1, Metadata: tags, created: time.Now()}
	c.volumes = append(c.volumes, v)
	return v.ID, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.volumeNamed(v.ID) == nil {
			return fmt.Errorf("volume %s is gone", v.ID)
		}
		c.dropVolume(v)
		return nil
	}
}
