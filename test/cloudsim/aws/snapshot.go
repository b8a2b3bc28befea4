// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"time"
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
	// Those of a volume, with what that had.
	volume  string
	content []byte
	started time.Time
	// unbooked ones are somebody else's.
	unbooked bool
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

// maxPending is how many snapshots of one volume can be pending (Amazon EBS endpoints and quotas, "Concurrent snapshots").
const maxPending = 5

// createSnapshot takes no token: each call makes one.
func (c *Cloud) createSnapshot(r request) (obj, *failure) {
	v, f := c.findVolume(r.get("VolumeId"))
	if f != nil {
		return nil, f
	}
	tags, pendings := map[string]map[string]string{}, 0
	if f := readTags(r.params, []string{"snapshot"}, tags); f != nil {
		return nil, f
	}
	for _, s := range c.snapshots {
		if s.volume == v.id && s.state == "pending" {
			pendings++
		}
	}
	switch {
	case v.state != "available" && v.state != "in-use":
		return nil, fail("IncorrectState", "Volume '%s' is in the '%s' state", v.id, v.state)
	case pendings >= maxPending:
		return nil, fail("ConcurrentSnapshotLimitExceeded", "Maximum allowed in-progress snapshots for a single volume exceeded.")
	}
	s := &snapshot{id: c.nextID("snap"), state: "pending", size: v.size, volume: v.id, content: slices.Clone(v.content), started: c.now(), tags: tags["snapshot"]}
	c.snapshots[s.id] = s
	c.World.Add(KindSnapshot, s.id, s.tags)
	time.AfterFunc(max(c.options.Storage, time.Microsecond), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.state = "completed"; c.options.FailSnapshots {
			s.state = "error"
		}
	})
	return s.describeEC2(s.state), nil
}

func (s *snapshot) describeEC2(state string) obj {
	o := obj{"SnapshotId": s.id, "State": state, "VolumeSize": s.size, "VolumeId": cmp.Or(s.volume, "vol-ffffffff"), "OwnerId": "123456789012", "Tags": tagObjs(s.tags)}
	if !s.started.IsZero() {
		o["StartTime"] = s.started
	}
	return o
}

func (c *Cloud) describeSnapshots(r request) (obj, *failure) {
	filters, f := filtersOf(r, "status")
	if f != nil {
		return nil, f
	}
	ids := r.strings("SnapshotId")
	if len(ids) > 0 && r.has("MaxResults") {
		return nil, fail("InvalidParameterCombination", "The parameter snapshotSet cannot be used with the parameter maxResults")
	}
	for _, id := range ids {
		if s := c.snapshots[id]; s == nil || !s.unbooked && !c.World.Visible(KindSnapshot, id) {
			return nil, fail("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
		}
	}
	listed := len(ids) == 0
	if listed {
		ids = slices.Sorted(maps.Keys(c.snapshots))
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		s := c.snapshots[id]
		return !filters.match(storedFacts(s.state, s.tags)) || listed && c.options.ListLag && !s.unbooked && !c.World.Visible(KindSnapshot, id)
	})
	ids, next, f := page(c, r, ids, 5, 1000)
	if f != nil {
		return nil, f
	}
	var list objs
	for _, id := range ids {
		s := c.snapshots[id]
		list = append(list, s.describeEC2(c.settleSnapshot(s)))
	}
	return withNext(obj{"Snapshots": list}, next), nil
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
