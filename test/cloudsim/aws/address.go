// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// address is an elastic one.
type address struct {
	id, ip, nic, association string
	tags                     map[string]string
}

func (c *Cloud) allocateAddress(r request) (obj, *failure) {
	if domain := r.get("Domain"); domain != "vpc" {
		return nil, fail("InvalidParameterValue", "Domain %q", domain)
	}
	if limit := c.options.Addresses; limit > 0 && len(c.addresses) >= limit {
		return nil, fail("AddressLimitExceeded", "The maximum number of addresses has been reached.")
	}
	tags := map[string]map[string]string{}
	if f := readTags(r.params, []string{"elastic-ip"}, tags); f != nil {
		return nil, f
	}
	a := c.newAddress(tags["elastic-ip"])
	return obj{"AllocationId": a.id, "PublicIp": a.ip, "Domain": "vpc"}, nil
}

func (c *Cloud) newAddress(tags map[string]string) *address {
	a := &address{id: c.nextID("eipalloc"), tags: maps.Clone(tags)}
	a.ip = fmt.Sprintf("203.0.%d.%d", c.serial/250%250, c.serial%250+1)
	c.addresses[a.id] = a
	c.World.Add(cloudsim.KindAddress, a.id, a.tags)
	return a
}

// associateAddress is idempotent by default. It takes away the address that
// the interface had.
func (c *Cloud) associateAddress(r request) (obj, *failure) {
	a := c.addresses[r.get("AllocationId")]
	if a == nil {
		return nil, fail("InvalidAllocationID.NotFound", "The allocation ID '%s' does not exist", r.get("AllocationId"))
	}
	i, n := c.nicOf(r.get("NetworkInterfaceId"))
	if n == nil {
		return nil, fail("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", r.get("NetworkInterfaceId"))
	}
	switch c.settled(i) {
	case pending:
		return nil, fail("IncorrectInstanceState", "The pending-instance-creation instance to which '%s' is attached is not in a valid state for this operation", n.id)
	case ending, terminated:
		return nil, fail("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", n.id)
	}
	if a.nic == n.id {
		return obj{"AssociationId": a.association}, nil
	}
	for _, other := range c.addresses {
		if other.nic == n.id {
			other.nic, other.association = "", ""
		}
	}
	a.nic, a.association = n.id, c.nextID("eipassoc")
	return obj{"AssociationId": a.association}, nil
}

func (c *Cloud) nicOf(id string) (*instance, *nic) {
	for _, i := range c.instances {
		for _, n := range i.nics {
			if n.id == id {
				return i, n
			}
		}
	}
	return nil, nil
}

func (c *Cloud) disassociateAddress(r request) (obj, *failure) {
	for _, a := range c.addresses {
		if a.association == r.get("AssociationId") && a.association != "" {
			a.nic, a.association = "", ""
			return obj{}, nil
		}
	}
	return nil, fail("InvalidAssociationID.NotFound", "The association ID '%s' does not exist", r.get("AssociationId"))
}

func (c *Cloud) releaseAddress(r request) (obj, *failure) {
	a := c.addresses[r.get("AllocationId")]
	switch {
	case a == nil:
		return nil, fail("InvalidAllocationID.NotFound", "The allocation ID '%s' does not exist", r.get("AllocationId"))
	case a.association != "":
		return nil, fail("InvalidIPAddress.InUse", "Address %s is in use.", a.ip)
	}
	delete(c.addresses, a.id)
	c.World.Remove(cloudsim.KindAddress, a.id)
	return obj{}, nil
}

func (c *Cloud) describeAddresses(r request) (obj, *failure) {
	filters, f := filtersOf(r, "allocation-id", "instance-id", "network-interface-id")
	if f != nil {
		return nil, f
	}
	var ids []string
	for id := range c.addresses {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var list objs
	for _, id := range ids {
		a := c.addresses[id]
		facts := map[string]string{"allocation-id": id, "network-interface-id": a.nic}
		for key, value := range a.tags {
			facts["tag:"+key] = value
		}
		if !filters.match(facts) || c.options.ListLag && !c.World.Visible(cloudsim.KindAddress, id) {
			continue
		}
		o := obj{"AllocationId": id, "PublicIp": a.ip, "Domain": "vpc", "Tags": tagObjs(a.tags)}
		if a.nic != "" {
			o["NetworkInterfaceId"], o["AssociationId"] = a.nic, a.association
		}
		list = append(list, o)
	}
	return obj{"Addresses": list}, nil
}
