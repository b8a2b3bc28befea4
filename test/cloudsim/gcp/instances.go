// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// handlers are the calls that the simulator has. They run under the lock.
var handlers map[string]func(*Sim, *call) (any, error)

func init() {
	handlers = map[string]func(*Sim, *call) (any, error){
		"compute.instances.insert":              (*Sim).insert,
		"compute.instances.get":                 (*Sim).getInstance,
		"compute.instances.delete":              (*Sim).deleteInstance,
		"compute.instances.aggregatedList":      (*Sim).listInstances,
		"compute.instances.list":                (*Sim).listZoneInstances,
		"compute.instances.start":               (*Sim).start,
		"compute.instances.stop":                (*Sim).stop,
		"compute.instances.getSerialPortOutput": (*Sim).serialPort,
		"compute.disks.aggregatedList":          (*Sim).listDisks,
		"compute.disks.delete":                  (*Sim).deleteDisk,
		"compute.disks.insert":                  (*Sim).insertDisk,
		"compute.disks.get":                     (*Sim).getDisk,
		"compute.disks.resize":                  (*Sim).resizeDisk,
		"compute.disks.createSnapshot":          (*Sim).createSnapshot,
		"compute.instances.attachDisk":          (*Sim).attachDisk,
		"compute.instances.detachDisk":          (*Sim).detachDisk,
		"compute.snapshots.get":                 (*Sim).getSnapshot,
		"compute.snapshots.list":                (*Sim).listSnapshots,
		"compute.snapshots.delete":              (*Sim).deleteSnapshot,
		"compute.zoneOperations.get":            (*Sim).getOperation,
		"compute.zoneOperations.wait":           (*Sim).getOperation,
		"compute.zoneOperations.list":           (*Sim).listOperations,
		"compute.machineTypes.list":             (*Sim).listMachineTypes,
		"compute.images.get":                    (*Sim).getImage,
		"compute.images.list":                   (*Sim).listImages,
		"compute.images.getFromFamily":          (*Sim).getFamily,
		"compute.images.insert":                 (*Sim).insertImage,
		"compute.images.delete":                 (*Sim).deleteImage,
		"compute.globalOperations.get":          (*Sim).getGlobalOperation,
		"compute.networks.get":                  (*Sim).getNetwork,
		"compute.subnetworks.get":               (*Sim).getSubnetwork,
		"compute.machineTypes.get":              (*Sim).getMachineType,
		"compute.zones.get":                     (*Sim).getZone,
		"compute.zones.list":                    (*Sim).listZones,
		"compute.regions.list":                  (*Sim).listRegions,
		"compute.regions.get":                   (*Sim).getRegion,
		"compute.diskTypes.get":                 (*Sim).getDiskType,
	}
}

func (s *Sim) insert(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	zone, name := c.path["zone"], text(c.body, "name")
	at := zone + "/" + name
	if s.instances[at] != nil {
		return nil, refuse(http.StatusConflict, "alreadyExists", "The resource 'projects/%s/zones/%s/instances/%s' already exists", Project, zone, name)
	}
	if s.disks[at] != nil {
		return nil, refuse(http.StatusConflict, "alreadyExists", "The resource 'projects/%s/zones/%s/disks/%s' already exists", Project, zone, name)
	}
	if err := s.checkInstance(zone, c.body); err != nil {
		return nil, err
	}
	if left, limited := s.quotas["INSTANCES"]; limited && left < 1 {
		return nil, refuse(http.StatusForbidden, "quotaExceeded", "Quota 'INSTANCES' exceeded. Limit: 0 in region %s.", Region)
	}
	vm := s.accept(zone, name, c.body)
	op := s.begin(c, "insert", zone, text(vm, "selfLink"), vm["id"])
	s.inserts[text(vm, "id")] = op
	if fault := s.World.Called(Late("insert", zone)); fault != nil && fault.Code != "" {
		s.later(func() { s.abandon(at, vm, op, *fault) })
		return op.resource, nil
	}
	s.later(
		func() { op.resource["status"] = "RUNNING" },
		func() { s.place(vm) },
		func() {
			if vm["status"] == "STAGING" {
				vm["status"] = "RUNNING"
			}
			s.finish(op)
		},
	)
	return op.resource, nil
}

func resourceOf(o *operation) any {
	if o == nil {
		return nil
	}
	return o.resource
}

// accept writes down an instance and its disk.
func (s *Sim) accept(zone, name string, body map[string]any) map[string]any {
	at := zone + "/" + name
	vm := normal(body).(map[string]any)
	vm["id"], vm["status"], vm["creationTimestamp"] = fmt.Sprint(s.number()), "PROVISIONING", s.stamp()
	vm["kind"], vm["zone"], vm["selfLink"] = "compute#instance", s.link("zones/%s", zone), s.link("zones/%s/instances/%s", zone, name)
	vm["machineType"] = s.link("zones/%s/machineTypes/%s", zone, last(text(vm, "machineType")))
	boot := objects(vm, "disks")[0]
	params := object(boot, "initializeParams")
	disk := map[string]any{
		"kind": "compute#disk", "id": fmt.Sprint(s.number()), "name": name, "zone": vm["zone"], "creationTimestamp": s.stamp(),
		"users": []any{vm["selfLink"]}, "status": "READY", "selfLink": s.link("zones/%s/disks/%s", zone, name),
		"sizeGb": params["diskSizeGb"], "type": params["diskType"], "labels": params["labels"], "description": params["description"],
	}
	disk["sourceImage"] = s.link("global/images/%s", last(text(params, "sourceImage")))
	delete(boot, "initializeParams")
	boot["type"], boot["mode"], boot["kind"], boot["index"] = "PERSISTENT", "READ_WRITE", "compute#attachedDisk", 0
	for i, nic := range objects(vm, "networkInterfaces") {
		nic["name"], nic["kind"] = fmt.Sprintf("nic%d", i), "compute#networkInterface"
	}
	tags := object(vm, "tags")
	if tags == nil {
		tags = map[string]any{}
		vm["tags"] = tags
	}
	tags["fingerprint"], vm["labelFingerprint"] = "42WmSpB8rSM=", "42WmSpB8rSM="
	boot["source"] = disk["selfLink"]
	s.instances[at], s.disks[at] = vm, disk
	s.World.Add(cloudsim.KindInstance, text(vm, "id"), s.TagsOf(vm))
	s.World.Add(cloudsim.KindDisk, text(disk, "id"), s.TagsOf(disk))
	return vm
}

// place gives an instance its resources.
func (s *Sim) place(vm map[string]any) {
	if vm["status"] != "PROVISIONING" {
		return
	}
	vm["status"] = "STAGING"
	for _, nic := range objects(vm, "networkInterfaces") {
		nic["networkIP"] = s.address(10)
		for _, access := range objects(nic, "accessConfigs") {
			access["natIP"] = s.address(34)
		}
	}
}

func (s *Sim) address(first byte) string {
	s.addresses++
	return netip.AddrFrom4([4]byte{first, byte(s.addresses >> 16), byte(s.addresses >> 8), byte(s.addresses)}).String()
}

// abandon ends an insert that fails late.
func (s *Sim) abandon(at string, vm map[string]any, op *operation, fault cloudsim.Fault) {
	disk := s.disks[at]
	s.forget(at, vm)
	if fault.After && disk != nil { // the disk is left behind
		disk["users"] = []any{}
		disk["id"] = fmt.Sprint(s.number())
		s.disks[at] = disk
		s.World.Add(cloudsim.KindDisk, text(disk, "id"), s.TagsOf(disk))
	}
	s.fail(op, fault)
}

// forget takes an instance and the disk that goes with it off the books.
func (s *Sim) forget(at string, vm map[string]any) {
	if s.instances[at] == nil || s.instances[at]["id"] != vm["id"] {
		return
	}
	delete(s.instances, at)
	s.release(last(text(vm, "zone")), vm)
	s.World.Remove(cloudsim.KindInstance, text(vm, "id"))
	if disk := s.disks[at]; disk != nil {
		if auto, _ := objects(vm, "disks")[0]["autoDelete"].(bool); !auto {
			disk["users"] = []any{}
			return
		}
		delete(s.disks, at)
		s.World.Remove(cloudsim.KindDisk, text(disk, "id"))
	}
}

// find returns an instance by name or number.
func (s *Sim) find(c *call) (string, map[string]any) {
	at := c.place()
	vm := s.instances[at]
	if vm == nil {
		for place, other := range s.instances {
			if other["id"] == c.path["instance"] && strings.HasPrefix(place, c.path["zone"]+"/") {
				at, vm = place, other
			}
		}
	}
	return at, vm
}

// visible reports whether a look-up shows an instance: for certain from when its
// insert is done, before that with the lag of the books.
func (s *Sim) visible(vm map[string]any) bool {
	if o := s.inserts[text(vm, "id")]; o != nil && !o.done() {
		return s.World.Visible(cloudsim.KindInstance, text(vm, "id"))
	}
	return true
}

func (s *Sim) getInstance(c *call) (any, error) {
	_, vm := s.find(c)
	if vm == nil || !s.visible(vm) {
		return nil, notFound("projects/" + Project + "/zones/" + c.path["zone"] + "/instances/" + c.path["instance"])
	}
	return vm, nil
}

func (s *Sim) deleteInstance(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	at, vm := s.find(c)
	switch {
	case vm == nil || !s.visible(vm):
		return nil, notFound("projects/" + Project + "/zones/" + c.path["zone"] + "/instances/" + c.path["instance"])
	case vm["status"] == "PROVISIONING":
		return nil, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", at)
	}
	op := s.begin(c, "delete", c.path["zone"], text(vm, "selfLink"), vm["id"])
	if fault := s.World.Called(Late("delete", c.path["zone"])); fault != nil && fault.Code != "" {
		s.later(func() { s.fail(op, *fault) })
		return op.resource, nil
	}
	vm["status"] = "STOPPING"
	s.World.Deleting(cloudsim.KindInstance, text(vm, "id"))
	if disk := s.disks[at]; disk != nil {
		s.World.Deleting(cloudsim.KindDisk, text(disk, "id"))
	}
	s.later(func() {
		s.forget(at, vm)
		s.finish(op)
	})
	return op.resource, nil
}

func (s *Sim) stop(c *call) (any, error) {
	return s.power(c, "stop", "RUNNING", "STOPPING", "TERMINATED")
}

func (s *Sim) start(c *call) (any, error) {
	return s.power(c, "start", "TERMINATED", "STAGING", "RUNNING")
}

// power takes an instance from one state through another to a third. In the
// third it has nothing to do, in any other it cannot.
func (s *Sim) power(c *call, kind, from, through, to string) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	at, vm := s.find(c)
	if vm == nil {
		return nil, notFound("projects/" + Project + "/zones/" + c.path["zone"] + "/instances/" + c.path["instance"])
	}
	if vm["status"] != from && vm["status"] != to {
		return nil, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", at)
	}
	op := s.begin(c, kind, c.path["zone"], text(vm, "selfLink"), vm["id"])
	if vm["status"] == to {
		s.finish(op)
		return op.resource, nil
	}
	if fault := s.World.Called(Late(kind, c.path["zone"])); fault != nil && fault.Code != "" {
		s.later(func() { s.fail(op, *fault) })
		return op.resource, nil
	}
	vm["status"] = through
	s.later(func() {
		if vm["status"] == through {
			vm["status"] = to
		}
		s.finish(op)
	})
	return op.resource, nil
}

func (s *Sim) serialPort(c *call) (any, error) {
	_, vm := s.find(c)
	if vm == nil {
		return nil, notFound("projects/" + Project + "/zones/" + c.path["zone"] + "/instances/" + c.path["instance"])
	}
	contents := "SeaBIOS (version 1.8.2-google)\r\nTotal RAM Size = 0x0000000100000000\r\nBooting from Hard Disk 0...\r\n"
	return map[string]any{"kind": "compute#serialPortOutput", "contents": contents, "start": "0", "next": fmt.Sprint(len(contents))}, nil
}

// UserData returns what a guest finds at the metadata server, as its agent
// reads it.
func (s *Sim) UserData(id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	vm := s.instances[id]
	if vm == nil {
		return "", fmt.Errorf("no instance %s", id)
	}
	values := map[string]string{}
	for _, item := range objects(object(vm, "metadata"), "items") {
		values[text(item, "key")] = text(item, "value")
	}
	if values["user-data-encoding"] == "base64" {
		data, err := base64.StdEncoding.DecodeString(values["user-data"])
		return string(data), err
	}
	return values["user-data"], nil
}

// Instance returns a copy of an instance as the cloud has it.
func (s *Sim) Instance(id string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instances[id] == nil {
		return nil
	}
	return normal(s.instances[id]).(map[string]any)
}

// AddForeign makes an instance, with its disk, that is somebody else's.
func (s *Sim) AddForeign(zone, name, description string, labels map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := zone + "/" + name
	vm := map[string]any{
		"name": name, "id": fmt.Sprint(s.number()), "status": "RUNNING", "zone": s.link("zones/%s", zone), "description": description,
		"selfLink": s.link("zones/%s/instances/%s", zone, name), "creationTimestamp": s.stamp(), "labels": normal(labels),
		"machineType": s.link("zones/%s/machineTypes/e2-medium", zone),
		"disks":       []any{map[string]any{"boot": true, "autoDelete": true}}, "networkInterfaces": []any{map[string]any{"networkIP": s.address(10)}},
	}
	disk := map[string]any{
		"name": name, "id": fmt.Sprint(s.number()), "zone": vm["zone"], "description": description, "labels": normal(labels),
		"users": []any{vm["selfLink"]}, "creationTimestamp": s.stamp(),
	}
	s.instances[at], s.disks[at] = vm, disk
	s.World.AddForeign(cloudsim.KindInstance, text(vm, "id"), s.TagsOf(vm))
	s.World.AddForeign(cloudsim.KindDisk, text(disk, "id"), s.TagsOf(disk))
}
