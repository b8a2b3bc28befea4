// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Kinds of resources besides those of package cloudsim.
const (
	KindSnapshot = "snapshot"
	KindImage    = "image"
)

const blockSize = 512 << 10

type snapshot struct {
	id, state, token string
	size             int
	blocks           map[int][]byte
	tags             map[string]string
	reads            int // since it was completed
}

// startSnapshot and the two that follow are those of the EBS direct APIs
// (Amazon EBS user guide, "Use EBS direct APIs").
func (c *Cloud) startSnapshot(in input) (obj, *failure) {
	token := in.text("ClientToken")
	for _, s := range c.snapshots {
		if token != "" && s.token == token {
			return s.describe(), nil
		}
	}
	s := &snapshot{id: c.nextID("snap"), state: "pending", token: token, size: in.number("VolumeSize"), blocks: map[int][]byte{}, tags: map[string]string{}}
	list, _ := in.members["Tags"].([]any)
	for _, entry := range list {
		tag, _ := entry.(map[string]any)
		s.tags[tag["Key"].(string)], _ = tag["Value"].(string)
	}
	c.snapshots[s.id] = s
	c.World.Add(KindSnapshot, s.id, s.tags)
	return s.describe(), nil
}

func (s *snapshot) describe() obj {
	return obj{"SnapshotId": s.id, "Status": s.state, "VolumeSize": s.size, "BlockSize": blockSize}
}

func (c *Cloud) pendingSnapshot(in input) (*snapshot, *failure) {
	s := c.snapshots[in.text("SnapshotId")]
	switch {
	case s == nil:
		return nil, &failure{"ResourceNotFoundException", "The snapshot does not exist.", http.StatusNotFound}
	case s.state != "pending":
		return nil, fail("ValidationException", "The snapshot is %s.", s.state)
	}
	return s, nil
}

func (c *Cloud) putSnapshotBlock(in input) (obj, *failure) {
	s, f := c.pendingSnapshot(in)
	if f != nil {
		return nil, f
	}
	sum := sha256.Sum256(in.blob)
	index := in.number("BlockIndex")
	switch {
	case in.number("DataLength") != blockSize || len(in.blob) != blockSize:
		return nil, fail("ValidationException", "a block has %d bytes", blockSize)
	case in.text("Checksum") != base64.StdEncoding.EncodeToString(sum[:]):
		return nil, fail("ValidationException", "the checksum is another's")
	case index*blockSize >= s.size<<30:
		return nil, fail("ValidationException", "block %d is beyond the volume's end", index)
	}
	s.blocks[index] = in.blob
	return obj{"Checksum": in.text("Checksum"), "ChecksumAlgorithm": "SHA256"}, nil
}

func (c *Cloud) completeSnapshot(in input) (obj, *failure) {
	s, f := c.pendingSnapshot(in)
	switch {
	case s != nil && len(s.blocks) != in.number("ChangedBlocksCount"):
		return nil, fail("ValidationException", "the snapshot has %d blocks, not %d", len(s.blocks), in.number("ChangedBlocksCount"))
	case f != nil:
		return nil, f
	}
	s.state = "completing"
	return obj{"Status": "pending"}, nil
}

// settleSnapshot lets a snapshot end once it has been seen under way.
func (c *Cloud) settleSnapshot(s *snapshot) string {
	if s.state != "completing" {
		return s.state
	}
	if s.reads++; s.reads < 3 {
		return "pending"
	}
	s.state = "completed"
	if c.options.FailSnapshots {
		s.state = "error"
	}
	return s.state
}

func (c *Cloud) describeSnapshots(r request) (obj, *failure) {
	var list objs
	for _, id := range r.strings("SnapshotId") {
		s := c.snapshots[id]
		if s == nil || !c.World.Visible(KindSnapshot, id) {
			return nil, fail("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
		}
		list = append(list, obj{"SnapshotId": id, "State": c.settleSnapshot(s), "VolumeSize": s.size, "Tags": tagObjs(s.tags)})
	}
	return obj{"Snapshots": list}, nil
}

func (c *Cloud) deleteSnapshot(r request) (obj, *failure) {
	id := r.get("SnapshotId")
	if c.snapshots[id] == nil {
		return nil, fail("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
	}
	for ami, image := range c.Stock.Images {
		if image.Snapshot == id {
			return nil, fail("InvalidSnapshot.InUse", "The snapshot %s is currently in use by %s", id, ami)
		}
	}
	delete(c.snapshots, id)
	c.World.Remove(KindSnapshot, id)
	return nil, nil
}

func (c *Cloud) registerImage(r request) (obj, *failure) {
	root := r.in("BlockDeviceMapping.1")
	s := c.snapshots[root.get("Ebs.SnapshotId")]
	name := r.get("Name")
	tags := map[string]map[string]string{}
	switch {
	case s == nil:
		return nil, fail("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", root.get("Ebs.SnapshotId"))
	case s.state != "completed":
		return nil, fail("IncorrectState", "Snapshot %s is not completed", s.id)
	case root.get("DeviceName") != r.get("RootDeviceName") || r.get("RootDeviceName") == "":
		return nil, fail("InvalidParameterValue", "the root device is not among the mappings")
	case r.get("VirtualizationType") != "hvm":
		return nil, fail("InvalidParameterCombination", "paravirtual images need a kernel")
	}
	for ami, image := range c.Stock.Images {
		if image.Name == name {
			return nil, fail("InvalidAMIName.Duplicate", "AMI name %s is already in use by AMI %s", name, ami)
		}
	}
	if f := readTags(r.params, []string{"image", "snapshot"}, tags); f != nil {
		return nil, f
	}
	id := c.nextID("ami")
	c.Stock.Images[id] = Image{
		Name: name, Arch: r.get("Architecture"), Root: r.get("RootDeviceName"), BootMode: r.get("BootMode"), State: "pending", Size: s.size, Snapshot: s.id,
	}
	c.World.Add(KindImage, id, tags["image"])
	return obj{"ImageId": id}, nil
}

func (c *Cloud) deregisterImage(r request) (obj, *failure) {
	id := r.get("ImageId")
	if c.Stock.Images[id].Snapshot == "" {
		return nil, fail("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
	}
	delete(c.Stock.Images, id)
	c.World.Remove(KindImage, id)
	return nil, nil
}

// ImageContent returns the content of an image's snapshot as far as it was written.
func (c *Cloud) ImageContent(ami string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.snapshots[c.Stock.Images[ami].Snapshot]
	if s == nil {
		return nil
	}
	var content []byte
	for _, index := range slices.Sorted(maps.Keys(s.blocks)) {
		content = append(content, make([]byte, index*blockSize-len(content))...)
		content = append(content, s.blocks[index]...)
	}
	return content
}

// volume is one that has outlived its instance.
type volume struct {
	zone, state string
	size        int
	tags        map[string]string
	created     time.Time
}

// LoseVolumes takes the volumes from an instance: they stay when it ends.
func (c *Cloud) LoseVolumes(instance string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[instance]
	for _, d := range i.disks {
		c.volumes[d.id] = &volume{i.zone, "available", d.size, d.tags, i.launched}
	}
	i.disks = nil
}

func (c *Cloud) describeVolumes(r request) (obj, *failure) {
	filters, f := filtersOf(r, "status")
	if f != nil {
		return nil, f
	}
	ids := r.strings("VolumeId")
	for _, id := range ids {
		if c.volumes[id] == nil {
			return nil, fail("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
		}
	}
	if len(ids) == 0 {
		ids = slices.Sorted(maps.Keys(c.volumes))
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		facts := map[string]string{"status": c.volumes[id].state}
		for key, value := range c.volumes[id].tags {
			facts["tag:"+key] = value
		}
		return !filters.match(facts)
	})
	ids, next, f := page(c, r, ids, 5, 1000)
	if f != nil {
		return nil, f
	}
	var list objs
	for _, id := range ids {
		v := c.volumes[id]
		list = append(list, obj{"VolumeId": id, "State": v.state, "Size": v.size, "AvailabilityZone": v.zone, "CreateTime": v.created, "Tags": tagObjs(v.tags)})
	}
	return withNext(obj{"Volumes": list}, next), nil
}

func (c *Cloud) deleteVolume(r request) (obj, *failure) {
	id := r.get("VolumeId")
	if c.volumes[id] == nil {
		return nil, fail("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
	}
	delete(c.volumes, id)
	c.World.Remove(cloudsim.KindDisk, id)
	return nil, nil
}

// quotaVCPUs is the code of the quota of the standard families.
const quotaVCPUs = "L-1216C47A"

func (c *Cloud) getServiceQuota(in input) (obj, *failure) {
	if in.text("ServiceCode") != "ec2" || in.text("QuotaCode") != quotaVCPUs {
		return nil, &failure{"NoSuchResourceException", "The specified resource does not exist.", http.StatusBadRequest}
	}
	limit := c.options.VCPUs
	if limit == 0 {
		limit = 1 << 20
	}
	return obj{"Quota": obj{"ServiceCode": "ec2", "QuotaCode": quotaVCPUs, "QuotaName": "Running On-Demand Standard instances", "Value": float64(limit), "Unit": "None"}}, nil
}
