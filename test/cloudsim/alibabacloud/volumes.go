// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

// Disks and snapshots, as the pages of CreateDisk, DescribeDisks, DeleteDisk, AttachDisk, DetachDisk, ResizeDisk, CreateSnapshot,
// DescribeSnapshots and DeleteSnapshot have them.

// KindSnapshot is that of snapshots.
const KindSnapshot = "snapshot"

// Zone is that of VSwitch, OtherZone that of OtherVSwitch.
const (
	Zone      = zone
	OtherZone = otherZone
)

// MaxDataDisks is how many data disks an instance can have ("Block storage limits").
const MaxDataDisks = 16

// diskSizes are the least and the largest size of each category, in GiB (CreateDisk, Size); an ESSD has PL1.
var diskSizes = map[string][2]int{
	"cloud": {5, 2000}, "cloud_efficiency": {20, 32768}, "cloud_ssd": {20, 32768}, "cloud_essd": {20, 65536}, "cloud_auto": {1, 65536}, "cloud_essd_entry": {10, 32768},
}

// storage is a data disk or a snapshot.
type storage struct {
	id, name, category, zone string
	size                     int
	tags                     map[string]string
	created                  time.Time
	// source is the snapshot of which a disk is, or the disk of which a snapshot is.
	source, instance string
	status           string
	// unbooked ones are somebody else's.
	unbooked, attachedOnce bool
	content                []byte
}

func (s *storage) snapshot() bool { return strings.HasPrefix(s.id, "s-") }

func (s *storage) kind() string {
	if s.snapshot() {
		return KindSnapshot
	}
	return cloudsim.KindDisk
}

func (s *storage) object() object {
	var tags []object
	for _, key := range slices.Sorted(maps.Keys(s.tags)) {
		tags = append(tags, object{"TagKey": key, "TagValue": s.tags[key]})
	}
	shown := object{"Status": s.status, "CreationTime": s.created.Format(time.RFC3339), "Tags": object{"Tag": tags}}
	if s.snapshot() {
		maps.Copy(shown, object{"SnapshotId": s.id, "SnapshotName": s.name, "SourceDiskId": s.source, "SourceDiskSize": strconv.Itoa(s.size), "Available": s.status == "accomplished"})
	} else {
		maps.Copy(shown, object{
			"DiskId": s.id, "DiskName": s.name, "SourceSnapshotId": s.source, "Size": s.size, "Category": s.category, "ZoneId": s.zone, "InstanceId": s.instance,
			"SerialNumber": strings.TrimPrefix(s.id, "d-"), "MultiAttach": "Disabled", "Type": "data", "Portable": true,
		})
	}
	return shown
}

// laterStorage goes on after a while with what is still in a status. The caller holds mu.
func (c *Cloud) laterStorage(s *storage, status string, do func()) {
	time.AfterFunc(max(c.options.Lag, time.Microsecond), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.status == status && c.storage[s.id] == s {
			do()
		}
	})
}

func (c *Cloud) addStorage(s *storage) {
	s.created = c.now()
	c.storage[s.id] = s
	c.World.Add(s.kind(), s.id, s.tags)
}

func (c *Cloud) createDisk(p *parameters) (map[string]any, error) {
	return c.once("CreateDisk", p, func() (map[string]any, error) {
		s := &storage{
			id: newID("d-") + "00", name: p.text("DiskName"), category: p.text("DiskCategory"), zone: p.text("ZoneId"), size: p.number("Size", 0),
			source: p.text("SnapshotId"), status: "Creating",
		}
		var err error
		if s.tags, err = p.tags(); err != nil {
			return nil, err
		}
		from := c.storage[s.source]
		limits, known := diskSizes[s.category]
		switch {
		case !known:
			return nil, refuse("InvalidDiskCategory.NotSupported", "The specified disk category is not supported.")
		case s.zone != zone && s.zone != otherZone:
			return nil, refuse("InvalidZoneId.NotFound", "The specified zone does not exist.")
		case s.size < limits[0] || s.size > limits[1]:
			return nil, refuse("InvalidDiskSize.NotSupported", "The specified size %d is not supported.", s.size)
		case s.source != "" && (from == nil || !from.snapshot()):
			return nil, refuse("InvalidSnapshotId.NotFound", "The specified SnapshotId does not exist.")
		case s.source != "" && from.status != "accomplished":
			return nil, refuse("InvalidSnapshotId.NotReady", "The specified snapshot has not completed yet.")
		case p.text("KMSKeyId") != "" && !p.bool("Encrypted"):
			return nil, refuse("InvalidParameter.Conflict", "A KMS key is for a disk that is encrypted.")
		}
		p.used["ClientToken"] = true
		if from != nil {
			s.size, s.content = max(s.size, from.size), slices.Clone(from.content)
		}
		c.addStorage(s)
		c.laterStorage(s, "Creating", func() { s.status = "Available" })
		return object{"DiskId": s.id}, nil
	})
}

func (c *Cloud) createSnapshot(p *parameters) (map[string]any, error) {
	return c.once("CreateSnapshot", p, func() (map[string]any, error) {
		d, err := c.diskOf(p)
		if err != nil {
			return nil, err
		}
		s := &storage{id: newID("s-") + "00", name: p.text("SnapshotName"), source: d.id, size: d.size, status: "progressing", content: slices.Clone(d.content)}
		if s.tags, err = p.tags(); err != nil {
			return nil, err
		}
		switch {
		case !d.attachedOnce:
			return nil, refuse("IncorrectDiskStatus.NeverAttached", "The specified disk has never been attached to any instance.")
		case c.snapshotting(d.id):
			return nil, refuse("IncorrectDiskStatus.CreatingSnapshot", "A previous snapshot creation is in process.")
		case d.status != "Available" && d.status != "In_use":
			return nil, refuse("IncorrectDiskStatus", "The current disk status does not support this operation.")
		}
		p.used["ClientToken"] = true
		c.addStorage(s)
		c.laterStorage(s, "progressing", func() { s.status = "accomplished" })
		return object{"SnapshotId": s.id}, nil
	})
}

// snapshotting reports whether the cloud takes a snapshot of a disk just now.
func (c *Cloud) snapshotting(disk string) bool {
	for _, s := range c.storage {
		if s.source == disk && s.status == "progressing" {
			return true
		}
	}
	return false
}

// diskOf returns the data disk that a call is about.
func (c *Cloud) diskOf(p *parameters) (*storage, error) {
	s := c.storage[p.text("DiskId")]
	if s == nil || s.snapshot() {
		return nil, refuse("InvalidDiskId.NotFound", "The specified disk does not exist.")
	}
	return s, nil
}

func (c *Cloud) describeDisks(p *parameters) (map[string]any, error) {
	return c.describeStorage(p, "DiskIds", "Disks", "Disk", false)
}

func (c *Cloud) describeSnapshots(p *parameters) (map[string]any, error) {
	return c.describeStorage(p, "SnapshotIds", "Snapshots", "Snapshot", true)
}

func (c *Cloud) describeStorage(p *parameters, idsName, outer, inner string, snapshots bool) (map[string]any, error) {
	match, err := p.tags()
	if err != nil {
		return nil, err
	}
	var ids []string
	if text := p.text(idsName); text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil || len(ids) > 100 {
			return nil, refuse("InvalidParameter", "%s is not JSON list of 100 at most.", idsName)
		}
	}
	size := max(10, min(100, p.number("MaxResults", 10)))
	after, err := base64.StdEncoding.DecodeString(p.text("NextToken"))
	if err != nil {
		return nil, refuse("InvalidParameter", "NextToken is none of ours.")
	}
	var page []object
	answer, last := object{"NextToken": ""}, ""
	for _, id := range slices.Sorted(maps.Keys(c.storage)) {
		s := c.storage[id]
		if s.snapshot() != snapshots || id <= string(after) || ids != nil && !slices.Contains(ids, id) || !provider.HasTags(s.tags, match) ||
			!s.unbooked && !c.World.Visible(s.kind(), id) {
			continue
		}
		if len(page) == size {
			answer["NextToken"] = base64.StdEncoding.EncodeToString([]byte(last))
			break
		}
		last = id
		page = append(page, s.object())
	}
	answer[outer] = object{inner: page}
	return answer, nil
}

func (c *Cloud) dropStorage(s *storage) {
	delete(c.storage, s.id)
	c.World.Remove(s.kind(), s.id)
}

func (c *Cloud) deleteDisk(p *parameters) (map[string]any, error) {
	d, err := c.diskOf(p)
	switch {
	case err != nil:
		return nil, err
	case d.status != "Available":
		return nil, refuse("IncorrectDiskStatus", "The current disk status does not support this operation.")
	}
	d.status = "Deleting"
	c.World.Deleting(d.kind(), d.id)
	c.laterStorage(d, "Deleting", func() { c.dropStorage(d) })
	return object{}, nil
}

// deleteSnapshot ignores one that does not exist, as the page says.
func (c *Cloud) deleteSnapshot(p *parameters) (map[string]any, error) {
	s := c.storage[p.text("SnapshotId")]
	force := p.bool("Force")
	if s == nil || !s.snapshot() {
		return object{}, nil
	}
	for _, d := range c.storage {
		if d.source == s.id && !force {
			return nil, refuse("SnapshotCreatedDisk", "The snapshot has been used to create disks.")
		}
	}
	c.World.Deleting(s.kind(), s.id)
	c.dropStorage(s)
	return object{}, nil
}

func (c *Cloud) attachDisk(p *parameters) (map[string]any, error) {
	d, err := c.diskOf(p)
	if err != nil {
		return nil, err
	}
	i, err := c.find(p.text("InstanceId"))
	if err != nil {
		return nil, err
	}
	has := 0
	for _, other := range c.storage {
		if other.instance == i.id {
			has++
		}
	}
	switch status := c.statusOf(i); {
	case p.bool("DeleteWithInstance"):
		return nil, refuse("NotSimulated", "Disks that go with their instance.")
	case i.deleting || status != running && status != stopped:
		return nil, refuse("IncorrectInstanceStatus", "The current status of the resource does not support this operation.")
	case d.status != "Available":
		return nil, refuse("IncorrectDiskStatus", "The current status of the disk does not support this operation. The expected disk status is Available.")
	case d.zone != i.zone:
		return nil, refuse("ResourcesNotInSameZone", "The specified instance and disk are not in the same zone.")
	case has >= MaxDataDisks:
		return nil, refuse("InstanceDiskLimitExceeded", "The amount of the disk on instance in question reach its limits.")
	}
	d.status, d.instance, d.attachedOnce = "Attaching", i.id, true
	c.laterStorage(d, "Attaching", func() { d.status = "In_use" })
	return object{}, nil
}

func (c *Cloud) detachDisk(p *parameters) (map[string]any, error) {
	d, err := c.diskOf(p)
	if err != nil {
		return nil, err
	}
	i, err := c.find(p.text("InstanceId"))
	if err != nil {
		return nil, err
	}
	if status := c.statusOf(i); i.deleting || status != running && status != stopped {
		return nil, refuse("IncorrectInstanceStatus", "The current status of the resource does not support this operation.")
	}
	if d.instance != i.id || d.status != "In_use" {
		return nil, refuse("IncorrectDiskStatus", "The current disk status does not support this operation.")
	}
	d.status = "Detaching"
	c.laterStorage(d, "Detaching", func() { d.status, d.instance = "Available", "" })
	return object{}, nil
}

// letDisks detaches the disks of an instance that is gone.
func (c *Cloud) letDisks(i *instance) {
	for _, d := range c.storage {
		if d.instance == i.id {
			d.status, d.instance = "Available", ""
		}
	}
}

// resizeDisk takes "online" of a running instance only.
func (c *Cloud) resizeDisk(p *parameters) (map[string]any, error) {
	return c.once("ResizeDisk", p, func() (map[string]any, error) {
		d, err := c.diskOf(p)
		if err != nil {
			return nil, err
		}
		size, kind := p.number("NewSize", 0), p.text("Type")
		i := c.instances[d.instance]
		switch {
		case kind != "offline" && kind != "online":
			return nil, refuse("InvalidParameter", "Type is offline or online.")
		case d.status != "Available" && d.status != "In_use":
			return nil, refuse("IncorrectDiskStatus", "The current disk status does not support this operation.")
		case c.snapshotting(d.id):
			return nil, refuse("IncorrectDiskStatus.CreatingSnapshot", "A previous snapshot creation is in process.")
		case (i != nil && c.statusOf(i) == running) != (kind == "online"):
			return nil, refuse("InvalidParameter.Conflict", "Type %s does not go with the status of the instance.", kind)
		case size <= d.size || size > diskSizes[d.category][1]:
			return nil, refuse("InvalidDataDiskSize.ValueNotSupported", "The specified size %d beyond the permitted range.", size)
		}
		d.size = size
		return object{}, nil
	})
}

// ForeignDisk makes a disk of somebody else's and a snapshot of it, which have the tags of ours.
func (c *Cloud) ForeignDisk(tags map[string]string) (disk, snapshot string, remove func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &storage{id: newID("d-") + "00", category: "cloud_essd", zone: zone, size: 20, tags: tags, status: "Available", unbooked: true, created: c.now()}
	s := &storage{id: newID("s-") + "00", source: d.id, size: 20, tags: tags, status: "accomplished", unbooked: true, created: c.now()}
	c.storage[d.id], c.storage[s.id] = d, s
	return d.id, s.id, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.storage[d.id] == nil || c.storage[s.id] == nil {
			return fmt.Errorf("disk %s or snapshot %s is gone", d.id, s.id)
		}
		delete(c.storage, d.id)
		delete(c.storage, s.id)
		return nil
	}
}

// UseDisk does as if a disk had been attached once: the cloud takes snapshots of no others.
func (c *Cloud) UseDisk(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.storage[id]; d != nil {
		d.attachedOnce = true
	}
}

// WriteDisk writes the first bytes of a disk.
func (c *Cloud) WriteDisk(id string, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.storage[id] == nil {
		return fmt.Errorf("no disk %s", id)
	}
	c.storage[id].content = slices.Clone(data)
	return nil
}

// ReadDisk reads what WriteDisk has written to a disk, or to what it is a copy of.
func (c *Cloud) ReadDisk(id string, bytes int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.storage[id] == nil {
		return nil, fmt.Errorf("no disk %s", id)
	}
	return append(slices.Clone(c.storage[id].content), make([]byte, bytes)...)[:bytes], nil
}
