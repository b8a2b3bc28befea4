// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"slices"
)

// profile is an instance profile (page "x86-64 instance profiles").
type profile struct {
	name, arch   string
	cpus, memory int
	gpus         int
	zones        []string
	tdx          bool
}

var profiles = []profile{
	{name: "cx2-2x4", arch: "amd64", cpus: 2, memory: 4},
	{name: "bx2-2x8", arch: "amd64", cpus: 2, memory: 8},
	{name: "bx2-4x16", arch: "amd64", cpus: 4, memory: 16},
	{name: "bx3dc-2x10", arch: "amd64", cpus: 2, memory: 10, tdx: true},
	{name: "bx3dc-4x20", arch: "amd64", cpus: 4, memory: 20, tdx: true, zones: Zones[1:]},
	{name: "gx3-16x80x1l4", arch: "amd64", cpus: 16, memory: 80, gpus: 1},
	{name: "bz2-2x8", arch: "s390x", cpus: 2, memory: 8},
}

func profileNamed(name string) *profile {
	i := slices.IndexFunc(profiles, func(p profile) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &profiles[i]
}

func (p profile) in(zone string) bool { return p.zones == nil || slices.Contains(p.zones, zone) }

// listProfiles needs no action: every account may read profiles.
func (s *Sim) listProfiles(*call) (any, error) {
	var list []any
	for _, p := range profiles {
		var zones []any
		for _, zone := range Zones {
			if p.in(zone) {
				zones = append(zones, map[string]any{"name": zone, "href": s.Server.URL})
			}
		}
		modes := []any{"disabled"}
		if p.tdx {
			modes = append(modes, "tdx")
		}
		one := map[string]any{
			"name": p.name, "href": s.Server.URL, "family": "balanced", "status": "current", "resource_type": "instance_profile", "zones": zones,
			"vcpu_count": map[string]any{"type": "fixed", "value": p.cpus}, "memory": map[string]any{"type": "fixed", "value": p.memory},
			"vcpu_architecture":          map[string]any{"type": "fixed", "value": p.arch},
			"confidential_compute_modes": map[string]any{"type": "enum", "default": "disabled", "values": modes},
		}
		if p.gpus > 0 {
			one["gpu_count"] = map[string]any{"type": "fixed", "value": p.gpus}
			one["gpu_model"] = map[string]any{"type": "enum", "values": []any{"L4"}}
			one["gpu_manufacturer"] = map[string]any{"type": "enum", "values": []any{"nvidia"}}
		}
		list = append(list, one)
	}
	return map[string]any{"profiles": list}, nil
}

// images, by their architectures.
var images = map[string]string{Image: "amd64", S390X: "s390x"}

func (s *Sim) getImage(c *call) (any, error) {
	if err := s.need("is.image.image.read"); err != nil {
		return nil, err
	}
	arch, ok := s.archOf(c.id)
	if !ok {
		return nil, notFound("Image", c.id)
	}
	status, reasons := "available", []any{}
	if own := s.imported[c.id]; own != nil {
		status = own.status
		if status == "failed" {
			reasons = append(reasons, map[string]any{"code": "image_data_corrupted", "message": "the data is not an image"})
		}
	}
	return map[string]any{
		"id": c.id, "name": c.id, "status": status, "status_reasons": reasons, "minimum_provisioned_size": 10, "href": s.Server.URL, "crn": "crn:v1",
		"operating_system": map[string]any{"name": "linux", "architecture": arch},
	}, nil
}

func (s *Sim) getVPC(c *call) (any, error) {
	if err := s.need("is.vpc.vpc.read"); err != nil {
		return nil, err
	}
	if c.id != VPC {
		return nil, notFound("VPC", c.id)
	}
	return map[string]any{"id": VPC, "name": "vpc"}, nil
}

func (s *Sim) getSubnet(c *call) (any, error) {
	if err := s.need("is.subnet.subnet.read"); err != nil {
		return nil, err
	}
	at := max(slices.Index(Subnets, c.id), slices.Index(Tunnels, c.id))
	if at < 0 {
		return nil, notFound("Subnet", c.id)
	}
	return map[string]any{
		"id": c.id, "name": c.id, "zone": map[string]any{"name": Zones[at]}, "vpc": map[string]any{"id": VPC},
		"resource_group": map[string]any{"id": ResourceGroup, "name": "cluster"}, "available_ipv4_address_count": 200,
	}, nil
}

func (s *Sim) getKey(c *call) (any, error) {
	if err := s.need("is.key.key.read"); err != nil {
		return nil, err
	}
	if c.id != Key {
		return nil, notFound("Key", c.id)
	}
	return map[string]any{"id": Key, "name": "key"}, nil
}

// groups, by their names.
var groups = map[string]string{Group: "pods", "r006-group-kube": "kube-" + Cluster}

func groupExists(id string) bool { return groups[id] != "" }

func (s *Sim) getGroup(c *call) (any, error) {
	if err := s.need("is.security-group.security-group.read"); err != nil {
		return nil, err
	}
	if !groupExists(c.id) {
		return nil, notFound("Security group", c.id)
	}
	return map[string]any{"id": c.id, "name": groups[c.id]}, nil
}

func (s *Sim) listGroups(c *call) (any, error) {
	if err := s.need("is.security-group.security-group.list"); err != nil {
		return nil, err
	}
	ids := []string{}
	for id := range groups {
		ids = append(ids, id)
	}
	return s.page(c, "security_groups", ids, func(id string) any { return map[string]any{"id": id, "name": groups[id]} }), nil
}
