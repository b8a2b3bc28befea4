// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"maps"
	"slices"
)

// Instance is what a test may want to know of one.
type Instance struct {
	Type, Zone, Subnet, Image, Key string
	SNP, Spot, Public              bool
	NICs                           []NIC
	Disks                          []Disk
}

// NIC is an interface.
type NIC struct {
	Subnet string
	Groups []string
	Tags   map[string]string
}

// Disk is a volume.
type Disk struct {
	Device, Type string
	Size         int
	Encrypted    bool
	Tags         map[string]string
}

// Inspect returns an instance, and whether it was ever made.
func (c *Cloud) Inspect(id string) (Instance, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[id]
	if i == nil {
		return Instance{}, false
	}
	seen := Instance{Type: i.kind, Zone: i.zone, Subnet: i.subnet, Image: i.image, Key: i.key, SNP: i.snp, Spot: i.spot, Public: i.public}
	for _, n := range i.nics {
		seen.NICs = append(seen.NICs, NIC{n.subnet, n.groups, maps.Clone(n.tags)})
	}
	for _, d := range i.disks {
		seen.Disks = append(seen.Disks, Disk{d.device, d.kind, d.size, d.encrypted, maps.Clone(d.tags)})
	}
	return seen, true
}

// AddAddress makes an elastic address with these tags, as a creation does that
// ends half way.
func (c *Cloud) AddAddress(tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newAddress(tags)
}

// Fill makes n running instances with these tags, which the books do not see.
func (c *Cloud) Fill(n int, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		id := c.nextID("i")
		c.instances[id] = &instance{
			id: id, zone: Region + "a", subnet: SubnetA, kind: "m6a.large", image: AMI, tags: tags, launched: c.now(), state: running, since: c.now(),
			nics: []*nic{{id: c.nextID("eni"), subnet: SubnetA, address: "10.0.1.4", goes: true}},
		}
		c.order = append(c.order, id)
	}
}

// ForeignDisk makes a volume of somebody else's and a snapshot of it, which have the tags of ours.
func (c *Cloud) ForeignDisk(tags map[string]string) (disk, snapshotID string, remove func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &volume{id: c.nextID("vol"), zone: Region + "a", state: "available", kind: "gp3", size: 1, tags: tags, created: c.now(), unbooked: true}
	s := &snapshot{id: c.nextID("snap"), volume: v.id, state: "completed", size: 1, tags: tags, started: c.now(), unbooked: true}
	c.volumes[v.id], c.snapshots[s.id] = v, s
	return v.id, s.id, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.volumes[v.id] == nil || c.snapshots[s.id] == nil {
			return fmt.Errorf("volume %s or snapshot %s is gone", v.id, s.id)
		}
		delete(c.volumes, v.id)
		delete(c.snapshots, s.id)
		return nil
	}
}

// WriteDisk writes the first bytes of a volume.
func (c *Cloud) WriteDisk(id string, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.volumes[id] == nil {
		return fmt.Errorf("no volume %s", id)
	}
	c.volumes[id].content = slices.Clone(data)
	return nil
}

// ReadDisk reads what WriteDisk has written to a volume, or to what it is a copy of.
func (c *Cloud) ReadDisk(id string, bytes int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.volumes[id] == nil {
		return nil, fmt.Errorf("no volume %s", id)
	}
	return append(slices.Clone(c.volumes[id].content), make([]byte, bytes)...)[:bytes], nil
}
