// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Volumes, as the pages of CreateVolume, CopyVolumes, DescribeVolumes, DeleteVolume, AttachVolume, DetachVolume, ModifyVolume
// and DescribeVolumesModifications of the EC2 API reference have them.

// volume is one that was made as such, or that has outlived its instance.
type volume struct {
	id, zone, state, kind string
	size                  int
	tags                  map[string]string
	created               time.Time
	snapshot              string
	encrypted             bool
	// instance has it by the name device.
	instance, device, attachment string
	// modified are the times of its changes, modification is how far the last is.
	modified     []time.Time
	modification string
	content      []byte
	// unbooked ones are somebody else's.
	unbooked bool
}

// volumeSizes are the least and the largest size of each type in GiB (CreateVolume, Size).
var volumeSizes = map[string][2]int{
	"gp2": {1, 16384}, "gp3": {1, 65536}, "io1": {4, 16384}, "io2": {4, 65536}, "st1": {125, 16384}, "sc1": {125, 16384}, "standard": {1, 1024},
}

// deviceNames are those that EC2 takes (EC2 user guide, "Device names for volumes on Amazon EC2 instances").
var deviceNames = regexp.MustCompile(`^/dev/(sd[b-z]|xvd[b-z]|xvd[a-d][a-z])$`)

// addCopyVolumes adds what is newer than the definitions: the parameters and the reply as the page of CopyVolumes has them.
func addCopyVolumes(d *definition) {
	members := map[string]*member{"SourceVolumeId": {Shape: "VolumeId"}, "Throughput": {Shape: "Integer"}}
	for _, name := range []string{"ClientToken", "DryRun", "Encrypted", "Iops", "KmsKeyId", "MultiAttachEnabled", "Size", "TagSpecifications", "VolumeType"} {
		members[name] = d.Shapes["CreateVolumeRequest"].Members[name]
	}
	d.Shapes["CopyVolumesRequest"] = &shape{Type: "structure", Members: members, Required: []string{"SourceVolumeId"}}
	d.Shapes["CopyVolumesResult"] = &shape{Type: "structure", Members: map[string]*member{"Volumes": {Shape: "VolumeList", LocationName: "volumeSet"}}}
	d.Operations["CopyVolumes"] = &operation{Input: &member{Shape: "CopyVolumesRequest"}, Output: &member{Shape: "CopyVolumesResult"}}
}

// laterVolume goes on after a while with a volume whose state is still the same. The caller holds mu.
func (c *Cloud) laterVolume(v *volume, same func() bool, do func()) {
	time.AfterFunc(max(c.options.Storage, time.Microsecond), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.volumes[v.id] == v && same() {
			do()
		}
	})
}

func (c *Cloud) createVolume(r request) (obj, *failure) {
	return c.makeVolume(r, func(v *volume) *failure {
		v.zone, v.snapshot = r.get("AvailabilityZone"), r.get("SnapshotId")
		switch {
		case !slices.ContainsFunc(slices.Collect(maps.Values(c.Stock.Subnets)), func(s Subnet) bool { return s.Zone == v.zone }):
			return fail("InvalidZone.NotFound", "The zone '%s' does not exist.", v.zone)
		case v.snapshot == "" && v.size == 0:
			return fail("MissingParameter", "The request must contain the parameter size or snapshotId")
		case v.snapshot == "":
			return nil
		}
		s := c.snapshots[v.snapshot]
		switch {
		case s == nil:
			return fail("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", v.snapshot)
		case c.settleSnapshot(s) != "completed":
			return fail("IncorrectState", "Snapshot is in invalid state - %s", s.state)
		}
		return v.copyOf(s.size, s.content)
	})
}

func (c *Cloud) copyVolumes(r request) (obj, *failure) {
	answer, f := c.makeVolume(r, func(v *volume) *failure {
		source, f := c.findVolume(r.get("SourceVolumeId"))
		switch {
		case f != nil:
			return f
		case source.state != "available" && source.state != "in-use":
			return fail("IncorrectState", "The volume '%s' is in the state %s.", source.id, source.state)
		}
		v.zone = source.zone
		return v.copyOf(source.size, source.content)
	})
	return obj{"Volumes": objs{answer}}, f
}

func (v *volume) copyOf(size int, content []byte) *failure {
	if v.size = cmp.Or(v.size, size); v.size < size {
		return fail("InvalidParameterValue", "Volume of size %dGB is smaller than its source, expect size >= %dGB", v.size, size)
	}
	v.content = slices.Clone(content)
	return nil
}

// makeVolume is what both have in common. EC2 looks at the quota before it looks at the token, as the CSI driver of EBS notes.
func (c *Cloud) makeVolume(r request, source func(*volume) *failure) (obj, *failure) {
	if limit := c.options.Volumes; limit > 0 && len(c.volumes) >= limit {
		return nil, fail("VolumeLimitExceeded", "You have exceeded your maximum volume limit of %d.", limit)
	}
	token := r.action + " " + r.get("ClientToken")
	if before, ok := c.tokens[token]; ok {
		if before.fingerprint != fingerprint(r.form) {
			return nil, fail("IdempotentParameterMismatch", "The client token you have provided is associated with a request with different parameters.")
		}
		return c.replies[before.instance], nil
	}
	v := &volume{state: "creating", size: r.number("Size", 0), kind: cmp.Or(r.get("VolumeType"), "gp2"), created: c.now(), encrypted: r.flag("Encrypted")}
	tags := map[string]map[string]string{}
	if f := readTags(r.params, []string{"volume"}, tags); f != nil {
		return nil, f
	}
	if f := source(v); f != nil {
		return nil, f
	}
	limits := volumeSizes[v.kind]
	switch {
	case v.size < limits[0] || v.size > limits[1]:
		return nil, fail("InvalidParameterValue", "Volume of %dGiB is not allowed for volume type %s; use %d to %d GiB", v.size, v.kind, limits[0], limits[1])
	case (v.kind == "io1" || v.kind == "io2") && !r.has("Iops"):
		return nil, fail("MissingParameter", "The parameter iops must be specified for %s volumes.", v.kind)
	case r.has("KmsKeyId") && !v.encrypted:
		return nil, fail("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	v.id, v.tags = c.nextID("vol"), tags["volume"]
	c.volumes[v.id] = v
	c.World.Add(cloudsim.KindDisk, v.id, v.tags)
	c.replies[v.id] = v.describe()
	if r.get("ClientToken") != "" {
		c.tokens[token] = use{fingerprint(r.form), v.id}
	}
	c.laterVolume(v, func() bool { return v.state == "creating" }, func() {
		if v.state = "available"; c.options.FailVolumes {
			v.state = "error"
		}
	})
	return c.replies[v.id], nil
}

func (v *volume) describe() obj {
	o := obj{
		"VolumeId": v.id, "State": v.state, "Size": v.size, "AvailabilityZone": v.zone, "CreateTime": v.created, "VolumeType": v.kind,
		"SnapshotId": v.snapshot, "Encrypted": v.encrypted, "MultiAttachEnabled": false, "Tags": tagObjs(v.tags),
	}
	if v.instance != "" {
		o["Attachments"] = objs{v.describeAttachment()}
	}
	return o
}

func (v *volume) describeAttachment() obj {
	return obj{"VolumeId": v.id, "InstanceId": v.instance, "Device": v.device, "State": v.attachment, "DeleteOnTermination": false}
}

func (c *Cloud) describeVolumes(r request) (obj, *failure) {
	filters, f := filtersOf(r, "status")
	if f != nil {
		return nil, f
	}
	ids := r.strings("VolumeId")
	if len(ids) > 0 && r.has("MaxResults") {
		return nil, fail("InvalidParameterCombination", "The parameter volumeSet cannot be used with the parameter maxResults")
	}
	for _, id := range ids {
		if v := c.volumes[id]; v == nil || !v.unbooked && !c.World.Visible(cloudsim.KindDisk, id) {
			return nil, fail("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
		}
	}
	listed := len(ids) == 0
	if listed {
		ids = slices.Sorted(maps.Keys(c.volumes))
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		v := c.volumes[id]
		return !filters.match(storedFacts(v.state, v.tags)) || listed && c.options.ListLag && !v.unbooked && !c.World.Visible(cloudsim.KindDisk, id)
	})
	ids, next, f := page(c, r, ids, 5, 1000)
	if f != nil {
		return nil, f
	}
	var list objs
	for _, id := range ids {
		list = append(list, c.volumes[id].describe())
	}
	return withNext(obj{"Volumes": list}, next), nil
}

func storedFacts(status string, tags map[string]string) map[string]string {
	facts := map[string]string{"status": status}
	for key, value := range tags {
		facts["tag:"+key] = value
	}
	return facts
}

func (c *Cloud) findVolume(id string) (*volume, *failure) {
	v := c.volumes[id]
	if v == nil || v.state == "deleting" {
		return nil, fail("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
	}
	return v, nil
}

func (c *Cloud) deleteVolume(r request) (obj, *failure) {
	v, f := c.findVolume(r.get("VolumeId"))
	switch {
	case f != nil:
		return nil, f
	case v.instance != "":
		return nil, fail("VolumeInUse", "Volume %s is currently attached to %s", v.id, v.instance)
	case v.state == "creating":
		return nil, fail("IncorrectState", "The volume '%s' is 'creating'", v.id)
	}
	v.state = "deleting"
	c.World.Deleting(cloudsim.KindDisk, v.id)
	c.laterVolume(v, func() bool { return true }, func() {
		delete(c.volumes, v.id)
		c.World.Remove(cloudsim.KindDisk, v.id)
	})
	return nil, nil
}

// volumesOf returns what was attached to an instance, in order.
func (c *Cloud) volumesOf(instance string) (list []*volume) {
	for _, id := range slices.Sorted(maps.Keys(c.volumes)) {
		if v := c.volumes[id]; v.instance == instance {
			list = append(list, v)
		}
	}
	return list
}

// MaxVolumes is how many an instance can have besides its root volume, unless the options say otherwise.
const MaxVolumes = 26

func (c *Cloud) attachVolume(r request) (obj, *failure) {
	v, f := c.findVolume(r.get("VolumeId"))
	if f != nil {
		return nil, f
	}
	i, f := c.find(r.get("InstanceId"))
	if f != nil {
		return nil, f
	}
	device, has := r.get("Device"), c.volumesOf(i.id)
	used := slices.ContainsFunc(i.disks, func(d *disk) bool { return d.device == device }) || slices.ContainsFunc(has, func(v *volume) bool { return v.device == device }) || c.options.TakenDevices[device]
	switch state := c.settled(i); {
	case v.instance != "":
		return nil, fail("VolumeInUse", "%s is already attached to an instance", v.id)
	case v.state != "available":
		return nil, fail("IncorrectState", "%s is not 'available'.", v.id)
	case state != running && state != stopped:
		return nil, fail("IncorrectState", "Instance '%s' is not 'running'.", i.id)
	case v.zone != i.zone:
		return nil, fail("InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", v.id, i.id)
	case !deviceNames.MatchString(device):
		return nil, fail("InvalidParameterValue", "Value (%s) for parameter device is invalid. %s is not a valid EBS device name.", device, device)
	case used:
		return nil, fail("InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %s is already in use", device, device)
	case len(has) >= cmp.Or(c.options.Attachments, MaxVolumes):
		return nil, fail("AttachmentLimitExceeded", "Maximum number of attachments (%d) already in use on instance", len(has))
	}
	v.instance, v.device, v.state, v.attachment = i.id, device, "in-use", "attaching"
	c.laterVolume(v, func() bool { return v.attachment == "attaching" }, func() { v.attachment = "attached" })
	return v.describeAttachment(), nil
}

func (c *Cloud) detachVolume(r request) (obj, *failure) {
	v, f := c.findVolume(r.get("VolumeId"))
	switch instance := r.get("InstanceId"); {
	case f != nil:
		return nil, f
	case v.instance == "" || v.attachment != "attached":
		return nil, fail("IncorrectState", "Volume '%s' is in the '%s' state.", v.id, v.state)
	case instance != "" && instance != v.instance:
		return nil, fail("InvalidAttachment.NotFound", "Volume '%s' is not attached to instance '%s'", v.id, instance)
	}
	v.attachment = "detaching"
	answer := v.describeAttachment()
	c.laterVolume(v, func() bool { return v.attachment == "detaching" }, v.letGo)
	return answer, nil
}

func (v *volume) letGo() { v.instance, v.device, v.attachment, v.state = "", "", "", "available" }

// maxModifications are those of a volume in 24 hours, since January 2026 (EBS user guide, "Requirements for Elastic Volumes").
const maxModifications = 4

func (c *Cloud) modifyVolume(r request) (obj, *failure) {
	v, f := c.findVolume(r.get("VolumeId"))
	if f != nil {
		return nil, f
	}
	size := r.number("Size", v.size)
	v.modified = slices.DeleteFunc(v.modified, func(at time.Time) bool { return c.now().Sub(at) > 24*time.Hour })
	switch {
	case v.state != "available" && v.state != "in-use":
		return nil, fail("IncorrectState", "The volume '%s' is '%s'", v.id, v.state)
	case v.modification == "modifying" || v.modification == "optimizing":
		return nil, fail("IncorrectModificationState", "Volume %s cannot be modified in modification state %s", v.id, v.modification)
	case len(v.modified) >= maxModifications:
		return nil, fail("VolumeModificationRateExceeded", "You've reached the maximum modification rate per volume limit.")
	case size < v.size:
		return nil, fail("InvalidParameterValue", "New size cannot be smaller than existing size")
	case size > volumeSizes[v.kind][1]:
		return nil, fail("InvalidParameterValue", "Volume of %dGiB is not allowed for volume type %s", size, v.kind)
	}
	// Whether the new size is shown before the guest sees it, the pages do not say.
	v.modified, v.modification, v.size = append(v.modified, c.now()), "modifying", size
	answer := obj{"VolumeModification": v.describeModification()}
	c.laterVolume(v, func() bool { return true }, func() {
		v.modification = "optimizing"
		if !c.options.Optimizing {
			c.laterVolume(v, func() bool { return true }, func() { v.modification = "completed" })
		}
	})
	return answer, nil
}

func (v *volume) describeModification() obj {
	return obj{"VolumeId": v.id, "ModificationState": v.modification, "TargetSize": v.size}
}

func (c *Cloud) describeModifications(r request) (obj, *failure) {
	var list objs
	for _, id := range r.strings("VolumeId") {
		v, f := c.findVolume(id)
		switch {
		case f != nil:
			return nil, f
		case v.modification == "":
			return nil, fail("InvalidVolumeModification.NotFound", "Modification for volume '%s' does not exist.", id)
		}
		list = append(list, v.describeModification())
	}
	return obj{"VolumesModifications": list}, nil
}

// LoseVolumes takes the volumes from an instance: they stay when it ends.
func (c *Cloud) LoseVolumes(instance string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[instance]
	for _, d := range i.disks {
		c.volumes[d.id] = &volume{id: d.id, zone: i.zone, state: "available", kind: d.kind, size: d.size, tags: d.tags, created: i.launched}
	}
	i.disks = nil
}
