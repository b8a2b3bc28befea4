// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// KindSnapshot is the kind of snapshots in the ledger.
const KindSnapshot = "snapshot"

// MaxDisks is how many disks an instance has at most, with its root disk. Google's has 128, and 16 for small machine types.
const MaxDisks = 5

// Sizes of disks, in units of 2^30 bytes: those of Persistent Disk, and of Hyperdisk Balanced.
const (
	minDiskGB      = 10
	minHyperdiskGB = 4
	maxDiskGB      = 65536
)

// hyperdisk is a type with another least size.
const hyperdisk = "hyperdisk-balanced"

func minGB(kind string) int {
	if kind == hyperdisk {
		return minHyperdiskGB
	}
	return minDiskGB
}

func gigabytes(o map[string]any, name string) int {
	n, _ := strconv.Atoi(fmt.Sprint(o[name]))
	return n
}

func (c *call) disk() string { return c.path["zone"] + "/" + c.path["disk"] }

func (s *Sim) diskOf(c *call) (string, map[string]any, error) {
	at := c.disk()
	disk := s.disks[at]
	for place, other := range s.disks {
		if other["id"] == c.path["disk"] && last(text(other, "zone")) == c.path["zone"] {
			at, disk = place, other
		}
	}
	if disk == nil {
		return at, nil, notFound("projects/" + Project + "/zones/" + c.path["zone"] + "/disks/" + c.path["disk"])
	}
	return at, disk, nil
}

func (s *Sim) getDisk(c *call) (any, error) {
	_, disk, err := s.diskOf(c)
	return disk, err
}

func (s *Sim) insertDisk(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	zone, name := c.path["zone"], text(c.body, "name")
	at := zone + "/" + name
	if s.disks[at] != nil {
		return nil, refuse(http.StatusConflict, "alreadyExists", "The resource 'projects/%s/zones/%s/disks/%s' already exists", Project, zone, name)
	}
	disk, err := s.newDisk(zone, c.body)
	if err != nil {
		return nil, err
	}
	if left, limited := s.quotas["DISKS_TOTAL_GB"]; limited && left < float64(gigabytes(disk, "sizeGb")) {
		return nil, refuse(http.StatusForbidden, "quotaExceeded", "Quota 'DISKS_TOTAL_GB' exceeded. Limit: %v in region %s.", left, Region)
	}
	s.disks[at] = disk
	s.World.Add(cloudsim.KindDisk, text(disk, "id"), s.TagsOf(disk))
	op := s.begin(c, "insert", zone, text(disk, "selfLink"), disk["id"])
	s.later(func() { op.resource["status"] = "RUNNING" }, func() {
		if fault := s.World.Called(Late("insertDisk", zone)); fault != nil && fault.Code != "" {
			s.dropDisk(at, disk)
			s.fail(op, *fault)
			return
		}
		disk["status"] = "READY"
		s.finish(op)
	})
	return op.resource, nil
}

// newDisk returns the disk of an insert's body.
func (s *Sim) newDisk(zone string, body map[string]any) (map[string]any, error) {
	disk := normal(body).(map[string]any)
	name := text(body, "name")
	disk["kind"], disk["id"], disk["zone"], disk["creationTimestamp"] = "compute#disk", fmt.Sprint(s.number()), s.link("zones/%s", zone), s.stamp()
	disk["status"], disk["selfLink"], disk["users"] = "CREATING", s.link("zones/%s/disks/%s", zone, name), []any{}
	kind, ok := partial(cmp.Or(text(body, "type"), "zones/"+zone+"/diskTypes/pd-standard"), "zones/"+zone+"/diskTypes")
	if !ok || !slices.Contains(diskTypes, kind) {
		return nil, missing("resource.type", text(body, "type"))
	}
	disk["type"] = s.link("zones/%s/diskTypes/%s", zone, kind)
	if len(text(body, "description")) > maxDescription {
		return nil, invalid("resource.description", "…", "Must be at most 2048 characters.")
	}
	least, err := s.copySource(zone, kind, disk)
	if err != nil {
		return nil, err
	}
	size := gigabytes(body, "sizeGb")
	if size == 0 {
		size = cmp.Or(least, 500) // the method's description
	}
	if size < max(least, minGB(kind)) || size > maxDiskGB {
		return nil, invalid("resource.sizeGb", fmt.Sprint(size), fmt.Sprintf("Disk size: must be from %d to %d GB.", max(least, minGB(kind)), maxDiskGB))
	}
	disk["sizeGb"] = fmt.Sprint(size)
	return disk, checkLabels("resource.labels", object(body, "labels"))
}

// copySource fills a disk from its source and returns how large that is. A clone has the zone and the type of its
// source (page "Create a disk clone").
func (s *Sim) copySource(zone, kind string, disk map[string]any) (int, error) {
	if source := text(disk, "sourceSnapshot"); source != "" {
		name, ok := partial(source, "global/snapshots")
		from := s.snapshots[name]
		switch {
		case !ok || from == nil:
			return 0, notFound(source)
		case from["status"] != "READY":
			return 0, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", source)
		}
		disk["sourceSnapshot"], disk["sourceSnapshotId"] = from["selfLink"], from["id"]
		s.contents[text(disk, "id")] = s.contents[text(from, "id")]
		return gigabytes(from, "diskSizeGb"), nil
	}
	source := text(disk, "sourceDisk")
	if source == "" {
		return 0, nil
	}
	name, ok := partial(source, "zones/"+zone+"/disks")
	from := s.disks[zone+"/"+name]
	switch {
	case !ok:
		return 0, invalid("resource.sourceDisk", source, "Source disk must be in the same zone.")
	case from == nil:
		return 0, notFound(source)
	case from["status"] != "READY":
		return 0, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", source)
	case last(text(from, "type")) != kind:
		return 0, invalid("resource.type", kind, "The disk type must be the same as that of the source disk.")
	}
	disk["sourceDisk"], disk["sourceDiskId"] = from["selfLink"], from["id"]
	s.contents[text(disk, "id")] = s.contents[text(from, "id")]
	return gigabytes(from, "sizeGb"), nil
}

func (s *Sim) dropDisk(at string, disk map[string]any) {
	if s.disks[at] != nil && s.disks[at]["id"] == disk["id"] {
		delete(s.disks, at)
	}
	s.World.Remove(cloudsim.KindDisk, text(disk, "id"))
}

func (s *Sim) resizeDisk(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	at, disk, err := s.diskOf(c)
	if err != nil {
		return nil, err
	}
	size := gigabytes(c.body, "sizeGb")
	switch {
	case disk["status"] != "READY":
		return nil, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", at)
	case size <= gigabytes(disk, "sizeGb") || size > maxDiskGB:
		return nil, invalid("sizeGb", fmt.Sprint(size), "New disk size must be larger than existing size, and at most 65536 GB.")
	}
	op := s.begin(c, "resizeDisk", c.path["zone"], text(disk, "selfLink"), disk["id"])
	s.later(func() {
		disk["sizeGb"] = fmt.Sprint(max(size, gigabytes(disk, "sizeGb")))
		s.finish(op)
	})
	return op.resource, nil
}

// attachDisk checks, and attaches a step later: of two that ask at the same time one operation fails.
func (s *Sim) attachDisk(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	at, vm := s.find(c)
	zone := c.path["zone"]
	if vm == nil {
		return nil, notFound("projects/" + Project + "/zones/" + zone + "/instances/" + c.path["instance"])
	}
	name, ok := partial(text(c.body, "source"), "zones/"+zone+"/disks")
	disk := s.disks[zone+"/"+name]
	switch {
	case !ok:
		return nil, invalid("resource.source", text(c.body, "source"), "The disk must be in the same zone as the instance.")
	case disk == nil:
		return nil, notFound(text(c.body, "source"))
	case vm["status"] != "RUNNING" && vm["status"] != "TERMINATED" || disk["status"] != "READY":
		return nil, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", at)
	case user(disk) != "":
		return nil, refuse(http.StatusBadRequest, "resourceInUseByAnotherResource", "The disk resource '%s' is already being used by '%s'", name, user(disk))
	}
	attached := normal(c.body).(map[string]any)
	attached["kind"], attached["source"], attached["boot"] = "compute#attachedDisk", disk["selfLink"], false
	attached["deviceName"] = cmp.Or(text(attached, "deviceName"), fmt.Sprintf("persistent-disk-%d", len(objects(vm, "disks"))))
	op := s.begin(c, "attachDisk", zone, text(vm, "selfLink"), vm["id"])
	s.later(func() { s.plug(vm, disk, attached, op) })
	return op.resource, nil
}

// user returns who has a disk.
func user(disk map[string]any) string {
	if users, _ := disk["users"].([]any); len(users) > 0 {
		return fmt.Sprint(users[0])
	}
	return ""
}

func (s *Sim) plug(vm, disk, attached map[string]any, op *operation) {
	disks, _ := vm["disks"].([]any)
	fault := s.World.Called(Late("attachDisk", op.zone))
	switch {
	case fault != nil && fault.Code != "":
		s.fail(op, *fault)
	case user(disk) != "":
		s.fail(op, cloudsim.Fault{Code: "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", Status: http.StatusBadRequest, Message: "The disk resource is already being used by '" + user(disk) + "'"})
	case s.disks[op.zone+"/"+text(disk, "name")] == nil || s.instances[op.zone+"/"+text(vm, "name")] == nil || vm["status"] == "STOPPING":
		s.fail(op, cloudsim.Fault{Code: "RESOURCE_NOT_READY", Status: http.StatusBadRequest, Message: "The resource is not ready"})
	case len(disks) >= MaxDisks:
		s.fail(op, cloudsim.Fault{Code: "LIMIT_EXCEEDED", Status: http.StatusForbidden, Message: fmt.Sprintf("Exceeded limit 'maximum_persistent_disks' on resource '%s'. Limit: %d.0", text(vm, "name"), MaxDisks)})
	case slices.ContainsFunc(objects(vm, "disks"), func(d map[string]any) bool { return d["deviceName"] == attached["deviceName"] }):
		s.fail(op, cloudsim.Fault{Code: "INVALID_FIELD_VALUE", Status: http.StatusBadRequest, Message: "The device name is already used."})
	default:
		attached["index"] = len(disks)
		vm["disks"] = append(slices.Clone(disks), any(attached))
		disk["users"] = []any{vm["selfLink"]}
		s.finish(op)
	}
}

func (s *Sim) detachDisk(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	at, vm := s.find(c)
	name := c.query.Get("deviceName")
	is := func(d any) bool { return text(d.(map[string]any), "deviceName") == name }
	switch {
	case vm == nil:
		return nil, notFound("projects/" + Project + "/zones/" + c.path["zone"] + "/instances/" + c.path["instance"])
	case vm["status"] == "STOPPING" || vm["status"] == "PROVISIONING":
		return nil, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", at)
	case !slices.ContainsFunc(vm["disks"].([]any), is):
		return nil, invalid("deviceName", name, "No attached disk found with device name '"+name+"'")
	}
	op := s.begin(c, "detachDisk", c.path["zone"], text(vm, "selfLink"), vm["id"])
	s.later(func() {
		for _, d := range objects(vm, "disks") {
			if disk := s.disks[op.zone+"/"+last(text(d, "source"))]; is(d) && disk != nil {
				disk["users"] = []any{}
			}
		}
		vm["disks"] = slices.DeleteFunc(slices.Clone(vm["disks"].([]any)), is)
		s.finish(op)
	})
	return op.resource, nil
}

// release lets the disks of an instance go that stay when it is deleted, and deletes the others.
func (s *Sim) release(zone string, vm map[string]any) {
	for _, d := range objects(vm, "disks")[1:] {
		at := zone + "/" + last(text(d, "source"))
		disk := s.disks[at]
		switch {
		case disk == nil:
		case d["autoDelete"] == true:
			s.dropDisk(at, disk)
		default:
			disk["users"] = []any{}
		}
	}
}
