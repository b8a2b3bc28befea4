// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"maps"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

// address is an EIP.
type address struct {
	id, name, addr     string
	status             string
	since              time.Time
	holder, holderKind string
	tags               map[string]string
	created            time.Time
}

// Statuses of EIPs.
const (
	available     = "Available"
	associating   = "Associating"
	inUse         = "InUse"
	unassociating = "Unassociating"
)

func (a *address) let() { a.status, a.holder, a.holderKind = available, "", "" }

// pass lets time pass.
func (c *Cloud) pass(a *address) {
	if c.now().Sub(a.since) < c.options.Lag {
		return
	}
	switch a.status {
	case associating:
		a.status = inUse
	case unassociating:
		a.let()
	}
}

func (c *Cloud) allocateAddress(p *parameters) (map[string]any, error) {
	return c.once("AllocateEipAddress", p, func() (map[string]any, error) {
		tags, err := p.tags()
		if err != nil {
			return nil, err
		}
		if c.options.MaxAddresses > 0 && len(c.addresses) >= c.options.MaxAddresses {
			return nil, refuse("QuotaExceeded.Eip", "The account has %d addresses.", len(c.addresses))
		}
		if n := p.number("Bandwidth", 5); n < 1 || n > 200 {
			return nil, refuse("InvalidParameter", "Bandwidth is from 1 to 200.")
		}
		if err := oneOf("InvalidParameter", p.text("InstanceChargeType"), "PostPaid", "PrePaid"); err != nil {
			return nil, err
		}
		if err := oneOf("InvalidParameter", p.text("InternetChargeType"), "PayByTraffic", "PayByBandwidth"); err != nil {
			return nil, err
		}
		a := &address{id: newID("eip-"), name: p.text("Name"), addr: c.address("203.0"), status: available, tags: tags, created: c.now()}
		c.addresses[a.id] = a
		c.World.Add(cloudsim.KindAddress, a.id, tags)
		return object{"AllocationId": a.id, "EipAddress": a.addr}, nil
	})
}

func (c *Cloud) findAddress(id string) (*address, error) {
	a := c.addresses[id]
	if a == nil {
		return nil, refuse("InvalidAllocationId.NotFound", "Specified allocation ID is not found.")
	}
	c.pass(a)
	return a, nil
}

func (c *Cloud) associateAddress(p *parameters) (map[string]any, error) {
	a, err := c.findAddress(p.text("AllocationId"))
	if err != nil {
		return nil, err
	}
	holder, kind := p.text("InstanceId"), p.text("InstanceType")
	machine := c.instances[holder]
	switch kind {
	case "EcsInstance", "":
		kind = "EcsInstance"
	case "NetworkInterface":
		n := c.nics[holder]
		if n == nil || n.primary {
			return nil, refuse("InvalidInstanceId.NotFound", "There is no secondary interface %s.", holder)
		}
		machine = c.instances[n.instance]
	default:
		return nil, refuse("NotSimulated", "Addresses of a %s.", kind)
	}
	if machine == nil {
		return nil, refuse("InvalidInstanceId.NotFound", "There is no instance %s.", holder)
	}
	status := c.statusOf(machine)
	if machine.deleting || status != running && status != stopped {
		return nil, refuse("IncorrectInstanceStatus", "The instance is %s.", status)
	}
	if a.status != available {
		return nil, refuse("IncorrectEipStatus", "The address is %s.", a.status)
	}
	for _, other := range c.addresses {
		if other.holder == holder {
			return nil, refuse("InvalidAssociation.Duplicated", "%s has the address %s.", holder, other.id)
		}
	}
	a.status, a.since, a.holder, a.holderKind = associating, c.now(), holder, kind
	return object{}, nil
}

func (c *Cloud) unassociateAddress(p *parameters) (map[string]any, error) {
	a, err := c.findAddress(p.text("AllocationId"))
	if err != nil {
		return nil, err
	}
	if a.status != inUse || a.holder != p.text("InstanceId") || a.holderKind != p.text("InstanceType") {
		return nil, refuse("IncorrectEipStatus", "The address is %s, of %s %s.", a.status, a.holderKind, a.holder)
	}
	a.status, a.since = unassociating, c.now()
	return object{}, nil
}

func (c *Cloud) releaseAddress(p *parameters) (map[string]any, error) {
	a, err := c.findAddress(p.text("AllocationId"))
	if err != nil {
		return nil, err
	}
	if a.status != available {
		return nil, refuse("IncorrectEipStatus", "The address is %s.", a.status)
	}
	delete(c.addresses, a.id)
	c.World.Remove(cloudsim.KindAddress, a.id)
	return object{}, nil
}

func (c *Cloud) describeAddresses(p *parameters) (map[string]any, error) {
	tags, err := p.tags()
	if err != nil {
		return nil, err
	}
	id, page, size := p.text("AllocationId"), p.number("PageNumber", 1), p.number("PageSize", 10)
	if size > 100 || size < 1 || page < 1 {
		return nil, refuse("InvalidParameter", "PageSize is from 1 to 100.")
	}
	var list []object
	for _, key := range slices.Sorted(maps.Keys(c.addresses)) {
		a := c.addresses[key]
		if id != "" && id != a.id || !provider.HasTags(a.tags, tags) || !c.World.Visible(cloudsim.KindAddress, a.id) {
			continue
		}
		c.pass(a)
		list = append(list, describeAddress(a))
	}
	from := min((page-1)*size, len(list))
	return object{
		"TotalCount": len(list), "PageNumber": page, "PageSize": size,
		"EipAddresses": object{"EipAddress": list[from:min(from+size, len(list))]},
	}, nil
}

func describeAddress(a *address) object {
	var tags []object
	for _, key := range slices.Sorted(maps.Keys(a.tags)) {
		tags = append(tags, object{"Key": key, "Value": a.tags[key]})
	}
	return object{
		"AllocationId": a.id, "Name": a.name, "IpAddress": a.addr, "Status": a.status, "InstanceId": a.holder, "InstanceType": a.holderKind,
		"AllocationTime": stamp(a.created), "Tags": object{"Tag": tags},
	}
}
