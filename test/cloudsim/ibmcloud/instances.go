// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"fmt"
	"net/http"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// vm is an instance.
type vm struct {
	id, name, zone, profile, status string
	reason                          string // of a failure
	created                         time.Time
	boot                            string // volume
	subnets, addresses              []string
	userData                        string
	settled                         bool // past the time in which look-ups lag
	prototype                       *vpcv1.InstancePrototypeInstanceByImage
}

// Late is the action under which the script finds instances that fail after
// the cloud has accepted them; the fault's code is that of the status reason.
func Late(zone string) string { return "late-instance." + zone }

func (s *Sim) createInstance(c *call) (any, error) {
	proto, err := readPrototype(c.r)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "bad_field", "%v", err)
	}
	if err := s.need(neededBy(proto)...); err != nil {
		return nil, err
	}
	p, err := s.check(proto)
	if err != nil {
		return nil, err
	}
	for _, other := range s.instances {
		if other.name == p.name {
			return nil, refuse(http.StatusConflict, "validation_unique_failed", "Provided Name (%s) is not unique", p.name)
		}
	}
	if s.quota >= 0 && len(s.instances) >= s.quota {
		return nil, refuse(http.StatusForbidden, "over_quota", "The instance quota of %d is reached", s.quota)
	}
	i := s.accept(proto, p)
	if fault := s.World.Called(Late(i.zone)); fault != nil && fault.Code != "" {
		s.later(func() {
			if i.status == "pending" {
				i.status, i.reason, i.settled = "failed", fault.Code, true
			}
		})
		return s.show(i), nil
	}
	s.later(
		func() { s.place(i) },
		func() {
			if i.status == "starting" {
				i.status = "running"
			}
		},
	)
	return s.show(i), nil
}

// accept writes down an instance and its boot volume.
func (s *Sim) accept(proto *vpcv1.InstancePrototypeInstanceByImage, p plan) *vm {
	n := s.number()
	i := &vm{
		id: fmt.Sprintf("%s_%08d-0000-4000-8000-000000000000", p.subnet[:4], n), name: p.name, zone: p.zone, profile: p.profile, status: "pending",
		created: time.Now().UTC(), boot: fmt.Sprintf("r006-%08d-vol", n), subnets: p.subnets, prototype: proto,
	}
	if proto.UserData != nil {
		i.userData = *proto.UserData
	}
	for range p.subnets {
		i.addresses = append(i.addresses, "0.0.0.0")
	}
	v := bootVolume(i, proto.BootVolumeAttachment.Volume.UserTags)
	s.instances[i.id], s.volumes[v.id] = i, v
	s.World.Add(cloudsim.KindInstance, i.id, s.TagsOf(v.tags))
	s.World.Add(cloudsim.KindDisk, v.id, s.TagsOf(v.tags))
	return i
}

func (s *Sim) place(i *vm) {
	if i.status != "pending" {
		return
	}
	i.status, i.settled = "starting", true
	for n := range i.addresses {
		i.addresses[n] = s.address()
	}
}

// forget takes an instance and its volume off the books.
func (s *Sim) forget(i *vm) {
	delete(s.instances, i.id)
	s.World.Remove(cloudsim.KindInstance, i.id)
	s.letVolumes(i)
	if auto := i.prototype == nil || *i.prototype.BootVolumeAttachment.DeleteVolumeOnInstanceDelete; auto {
		delete(s.volumes, i.boot)
		s.World.Remove(cloudsim.KindDisk, i.boot)
	} else if s.volumes[i.boot] != nil {
		s.volumes[i.boot].at = nil
	}
}

// Orphan takes a volume from its instance, which goes: as when a deletion is
// done only in part.
func (s *Sim) Orphan(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instances[id]
	s.volumes[i.boot].at = nil
	delete(s.instances, id)
	s.World.Remove(cloudsim.KindInstance, id)
}

// visible reports whether a look-up shows an instance, which lags while it is
// new.
func (s *Sim) visible(i *vm) bool {
	return i.settled || s.World.Visible(cloudsim.KindInstance, i.id)
}

func (s *Sim) getInstance(c *call) (any, error) {
	if err := s.need("is.instance.instance.read"); err != nil {
		return nil, err
	}
	i := s.instances[c.id]
	if i == nil || !s.visible(i) {
		return nil, notFound("Instance", c.id)
	}
	return s.show(i), nil
}

func (s *Sim) listInstances(c *call) (any, error) {
	if err := s.need("is.instance.instance.list"); err != nil {
		return nil, err
	}
	var ids []string
	for id, i := range s.instances {
		if name := c.query.Get("name"); name != "" && name != i.name || c.query.Has("vpc.id") && c.query.Get("vpc.id") != VPC {
			continue
		}
		if s.World.Visible(cloudsim.KindInstance, id) {
			ids = append(ids, id)
		}
	}
	return s.page(c, "instances", ids, func(id string) any { return s.show(s.instances[id]) }), nil
}

func (s *Sim) deleteInstance(c *call) (any, error) {
	if err := s.need("is.instance.instance.delete"); err != nil {
		return nil, err
	}
	i := s.instances[c.id]
	switch {
	case i == nil:
		return nil, notFound("Instance", c.id)
	case i.status == "pending":
		return nil, refuse(http.StatusConflict, "instance_invalid_state", "Instance %s is pending", c.id)
	case i.status == "deleting":
		return nil, nil
	}
	i.status = "deleting"
	s.World.Deleting(cloudsim.KindInstance, i.id)
	s.World.Deleting(cloudsim.KindDisk, i.boot)
	s.later(func() {}, func() { s.forget(i) })
	return nil, nil
}

// moves are the states from which an action leads through another to a third.
var moves = map[string][3]string{"stop": {"running", "stopping", "stopped"}, "start": {"stopped", "starting", "running"}}

func (s *Sim) actInstance(c *call) (any, error) {
	if err := s.need("is.instance.instance.operate"); err != nil {
		return nil, err
	}
	var asked struct {
		Type  string `json:"type"`
		Force *bool  `json:"force"`
	}
	if err := strict(c.r, &asked); err != nil || moves[asked.Type][0] == "" {
		return nil, refuse(http.StatusBadRequest, "bad_field", "type %q: %v", asked.Type, err)
	}
	i := s.instances[c.id]
	if i == nil {
		return nil, notFound("Instance", c.id)
	}
	move := moves[asked.Type]
	if i.status != move[0] {
		return nil, refuse(http.StatusConflict, "instance_invalid_state", "Instance %s is %s", c.id, i.status)
	}
	i.status = move[1]
	s.later(func() {
		if i.status == move[1] {
			i.status = move[2]
		}
	})
	return map[string]any{"id": fmt.Sprint(s.number()), "type": asked.Type, "status": "pending", "created_at": stamp(time.Now())}, nil
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

// show is an instance as the API shows it.
func (s *Sim) show(i *vm) any {
	var nics []any
	for n, address := range i.addresses {
		nics = append(nics, map[string]any{
			"id": fmt.Sprintf("%s-nic%d", i.id, n), "name": fmt.Sprintf("eth%d", n), "resource_type": "network_interface", "href": s.Server.URL,
			"primary_ip": map[string]any{"address": address, "href": s.Server.URL, "id": "ip", "name": "ip", "resource_type": "subnet_reserved_ip"},
			"subnet":     map[string]any{"id": i.subnets[n], "name": i.subnets[n], "href": s.Server.URL, "crn": "crn:v1", "resource_type": "subnet"},
		})
	}
	shown := map[string]any{
		"id": i.id, "name": i.name, "status": i.status, "created_at": stamp(i.created), "crn": "crn:v1:bluemix:public:is:" + i.zone, "href": s.Server.URL,
		"zone": map[string]any{"name": i.zone, "href": s.Server.URL}, "profile": map[string]any{"name": i.profile, "href": s.Server.URL, "resource_type": "instance_profile"},
		"vpc":                       map[string]any{"id": VPC, "name": "vpc", "crn": "crn:v1", "href": s.Server.URL, "resource_type": "vpc"},
		"primary_network_interface": nics[0], "network_interfaces": nics, "status_reasons": []any{}, "startable": true, "resource_type": "instance",
		"boot_volume_attachment": s.showReference(i.boot, "boot"),
	}
	attachments := []any{shown["boot_volume_attachment"]}
	for id, v := range s.volumes {
		if v.at != nil && v.at.instance == i.id && id != i.boot {
			attachments = append(attachments, s.showReference(id, v.at.id))
		}
	}
	shown["volume_attachments"] = attachments
	if i.status == "failed" {
		shown["status_reasons"] = []any{map[string]any{"code": i.reason, "message": "as the script says"}}
	}
	return shown
}

// UserData returns what a guest reads at the metadata service.
func (s *Sim) UserData(id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instances[id]
	if i == nil {
		return "", fmt.Errorf("no instance %s", id)
	}
	if service := i.prototype.MetadataService; service == nil || !*service.Enabled {
		return "", fmt.Errorf("the metadata service of %s is off", id)
	}
	return i.userData, nil
}

// Prototype returns what an instance was made of.
func (s *Sim) Prototype(id string) *vpcv1.InstancePrototypeInstanceByImage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instances[id] == nil {
		return nil
	}
	return s.instances[id].prototype
}

// AddForeign makes an instance, with its volume, that is somebody else's.
func (s *Sim) AddForeign(name string, tags []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.number()
	i := &vm{
		id: fmt.Sprintf("0717_%08d-0000-4000-8000-000000000000", n), name: name, zone: Zones[0], profile: "bx2-2x8", status: "running", settled: true,
		created: time.Now(), boot: fmt.Sprintf("r006-%08d-vol", n), subnets: Subnets[:1], addresses: []string{s.address()},
	}
	s.instances[i.id], s.volumes[i.boot] = i, bootVolume(i, tags)
	s.World.AddForeign(cloudsim.KindInstance, i.id, s.TagsOf(tags))
	s.World.AddForeign(cloudsim.KindDisk, i.boot, s.TagsOf(tags))
}
