// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// KindBalancer are instances of Classic Load Balancer (CLB).
const KindBalancer = "load-balancer"

// balancer is a CLB instance.
type balancer struct {
	id, name, address    string
	addressType, vswitch string
	spec, instanceCharge string
	internetCharge       string
	bandwidth            int
	protected            bool
	tags                 map[string]string
	created              time.Time
	servers              map[string]int // weights by instance
	listeners            map[string]*listener
	// configured is when the last change was made: another is refused until
	// Options.Lag later.
	configured time.Time
}

// listener is one port, of "tcp" or "udp".
type listener struct {
	protocol     string
	port, target int
	running      bool
}

func listenerKey(protocol string, port int) string { return fmt.Sprintf("%s:%05d", protocol, port) }

// balancerSpecs are those that can be had (CreateLoadBalancer, LoadBalancerSpec).
var balancerSpecs = []string{"slb.s1.small", "slb.s2.small", "slb.s2.medium", "slb.s3.small", "slb.s3.medium", "slb.s3.large"}

func (c *Cloud) createBalancer(p *parameters) (map[string]any, error) {
	return c.once("CreateLoadBalancer", p, func() (map[string]any, error) {
		tags, err := p.tags()
		if err != nil {
			return nil, err
		}
		b := &balancer{
			id: newID("lb-"), name: p.text("LoadBalancerName"), addressType: p.text("AddressType"), vswitch: p.text("VSwitchId"),
			spec: p.text("LoadBalancerSpec"), instanceCharge: p.text("InstanceChargeType"), internetCharge: p.text("InternetChargeType"),
			bandwidth: p.number("Bandwidth", 0), protected: p.text("DeleteProtection") == "on", tags: tags, created: c.now(),
			servers: map[string]int{}, listeners: map[string]*listener{},
		}
		if err := c.checkBalancer(b, p); err != nil {
			return nil, err
		}
		if c.options.MaxBalancers > 0 && len(c.balancers) >= c.options.MaxBalancers {
			return nil, refuse("QuotaExceeded.LoadBalancer", "The account has %d load balancers.", len(c.balancers))
		}
		network := "203.0"
		if b.addressType == "intranet" {
			network = "10.99"
		}
		b.address = c.address(network)
		c.balancers[b.id] = b
		c.World.Add(KindBalancer, b.id, tags)
		return object{"LoadBalancerId": b.id, "LoadBalancerName": b.name, "Address": b.address, "VSwitchId": b.vswitch, "NetworkType": "vpc"}, nil
	})
}

func (c *Cloud) checkBalancer(b *balancer, p *parameters) error {
	for key := range b.tags {
		if len(key) > 64 { // CreateLoadBalancer, Tag.N.Key
			return refuse("InvalidTagKey.Malformed", "The tag key %q has more than 64 characters.", key)
		}
	}
	for _, test := range []struct {
		value   string
		choices []string
	}{
		{b.addressType, []string{"internet", "intranet"}}, {b.spec, balancerSpecs}, {b.instanceCharge, []string{"PayBySpec", "PayByCLCU"}},
		{b.internetCharge, []string{"paybytraffic", "paybybandwidth"}}, {p.text("PayType"), []string{"PayOnDemand"}},
		{p.text("DeleteProtection"), []string{"on", "off"}},
	} {
		if err := oneOf("InvalidParameter", test.value, test.choices...); err != nil {
			return err
		}
	}
	switch {
	case len(b.name) > 80 || b.name != "" && !strings.ContainsAny(strings.ToLower(b.name[:1]), "abcdefghijklmnopqrstuvwxyz"):
		return refuse("InvalidParameter", "LoadBalancerName: %q.", b.name)
	case b.instanceCharge != "PayByCLCU" && b.spec == "":
		return refuse("MissingParameter", "LoadBalancerSpec is required: there are no shared instances any more.")
	case b.instanceCharge == "PayByCLCU" && b.internetCharge == "paybybandwidth":
		return refuse("InvalidParameter", "PayByCLCU is for paybytraffic only.")
	case b.internetCharge == "paybybandwidth" && (b.bandwidth < 1 || b.bandwidth > 5120):
		return refuse("InvalidParameter", "Bandwidth is from 1 to 5120.")
	case b.addressType == "intranet" && b.vswitch == "":
		return refuse("MissingParameter", "VSwitchId is required of an internal load balancer in a VPC.")
	case b.vswitch != "" && vswitches[b.vswitch].vpc == "":
		return refuse("InvalidVSwitchId.NotFound", "There is no vSwitch %s.", b.vswitch)
	}
	return nil
}

func (c *Cloud) findBalancer(p *parameters) (*balancer, error) {
	b := c.balancers[p.text("LoadBalancerId")]
	if b == nil {
		return nil, refuse("InvalidLoadBalancerId.NotFound", "The specified LoadBalancerId does not exist.")
	}
	return b, nil
}

// configure returns a load balancer for a change, of which there is one at a time.
func (c *Cloud) configure(p *parameters) (*balancer, error) {
	b, err := c.findBalancer(p)
	if err != nil {
		return nil, err
	}
	if c.now().Sub(b.configured) < c.options.Lag {
		return nil, refuse("BackendServer.configuring", "A previous configuration of the load balancer is pending; please try again later.")
	}
	b.configured = c.now()
	return b, nil
}

func (c *Cloud) deleteBalancer(p *parameters) (map[string]any, error) {
	b, err := c.configure(p)
	if err != nil {
		return nil, err
	}
	if b.protected {
		return nil, refuse("OperationDenied.DeleteProtectionIsOn", "The loadbalancer can't be deleted due to DeleteProtection is enabled.")
	}
	delete(c.balancers, b.id)
	c.World.Remove(KindBalancer, b.id)
	return object{}, nil
}

func (c *Cloud) modifyBalancerSpec(p *parameters) (map[string]any, error) {
	b, err := c.configure(p)
	if err != nil {
		return nil, err
	}
	spec := p.text("LoadBalancerSpec")
	if err := oneOf("InvalidParameter", spec, balancerSpecs...); err != nil {
		return nil, err
	}
	b.spec = spec
	return object{}, nil
}

func (c *Cloud) modifyBalancerInternet(p *parameters) (map[string]any, error) {
	b, err := c.configure(p)
	if err != nil {
		return nil, err
	}
	changed := *b
	changed.internetCharge, changed.bandwidth = p.text("InternetChargeType"), p.number("Bandwidth", 0)
	if err := c.checkBalancer(&changed, p); err != nil {
		return nil, err
	}
	b.internetCharge, b.bandwidth = changed.internetCharge, changed.bandwidth
	return object{}, nil
}

func (c *Cloud) describeBalancers(p *parameters) (map[string]any, error) {
	tags, err := p.tags()
	if err != nil {
		return nil, err
	}
	id, page, size := p.text("LoadBalancerId"), p.number("PageNumber", 1), p.number("PageSize", 10)
	if size > 100 || size < 1 || page < 1 {
		return nil, refuse("InvalidParameter", "PageSize is from 1 to 100.")
	}
	list := []object{}
	for _, key := range slices.Sorted(maps.Keys(c.balancers)) {
		b := c.balancers[key]
		if (id == "" || id == b.id) && provider.HasTags(b.tags, tags) && c.World.Visible(KindBalancer, b.id) {
			list = append(list, describeBalancer(b))
		}
	}
	from := min((page-1)*size, len(list))
	return object{
		"TotalCount": len(list), "PageNumber": page, "PageSize": size,
		"LoadBalancers": object{"LoadBalancer": list[from:min(from+size, len(list))]},
	}, nil
}

func describeBalancer(b *balancer) object {
	tags := []object{}
	for _, key := range slices.Sorted(maps.Keys(b.tags)) {
		tags = append(tags, object{"TagKey": key, "TagValue": b.tags[key]})
	}
	protection := "off"
	if b.protected {
		protection = "on"
	}
	return object{
		"LoadBalancerId": b.id, "LoadBalancerName": b.name, "LoadBalancerStatus": "active", "Address": b.address, "AddressType": b.addressType,
		"VSwitchId": b.vswitch, "LoadBalancerSpec": b.spec, "InstanceChargeType": b.instanceCharge, "InternetChargeType": b.internetCharge,
		"Bandwidth": b.bandwidth, "DeleteProtection": protection, "CreateTimeStamp": b.created.UnixMilli(), "Tags": object{"Tag": tags},
	}
}

func (c *Cloud) describeBalancer(p *parameters) (map[string]any, error) {
	b, err := c.findBalancer(p)
	if err != nil {
		return nil, err
	}
	servers := []object{}
	for _, id := range slices.Sorted(maps.Keys(b.servers)) {
		if c.instances[id] == nil {
			delete(b.servers, id) // the cloud takes out what is released
			continue
		}
		servers = append(servers, object{"ServerId": id, "Type": "ecs", "Weight": b.servers[id]})
	}
	answer := describeBalancer(b)
	answer["BackendServers"] = object{"BackendServer": servers}
	return answer, nil
}

// Balancer is a load balancer as its books have it.
type Balancer struct {
	ID, Address, AddressType, Spec, InternetCharge string
	Bandwidth                                      int
	Tags                                           map[string]string
	// Servers are instances, Listeners such as "tcp 80 to 30080"; those that do
	// not run end in "stopped". Both are sorted.
	Servers, Listeners []string
}

// Balancers returns the load balancers there are, sorted by id.
func (c *Cloud) Balancers() []Balancer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Balancer
	for _, id := range slices.Sorted(maps.Keys(c.balancers)) {
		b := c.balancers[id]
		one := Balancer{
			ID: id, Address: b.address, AddressType: b.addressType, Spec: b.spec, InternetCharge: b.internetCharge, Bandwidth: b.bandwidth,
			Tags: maps.Clone(b.tags), Servers: slices.Sorted(maps.Keys(b.servers)),
		}
		for _, key := range slices.Sorted(maps.Keys(b.listeners)) {
			l := b.listeners[key]
			text := fmt.Sprintf("%s %d to %d", l.protocol, l.port, l.target)
			if !l.running {
				text += " stopped"
			}
			one.Listeners = append(one.Listeners, text)
		}
		all = append(all, one)
	}
	return all
}

// AddForeignBalancer makes somebody else's load balancer, and returns its id.
func (c *Cloud) AddForeignBalancer(tags map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &balancer{
		id: newID("lb-"), name: "somebody-elses", address: c.address("203.0"), addressType: "internet", spec: "slb.s1.small", tags: maps.Clone(tags),
		created: c.now().Add(-time.Hour), servers: map[string]int{}, listeners: map[string]*listener{},
	}
	c.balancers[b.id] = b
	c.World.AddForeign(KindBalancer, b.id, tags)
	return b.id
}

// Protect turns the protection from deletion on or off, as somebody does by hand.
func (c *Cloud) Protect(id string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balancers[id].protected = on
}
