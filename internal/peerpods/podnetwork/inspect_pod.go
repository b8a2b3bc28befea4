// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

func (n *namespace) inspectPod(cfg *Config, subnets []netip.Prefix) error {
	link, err := n.podLink()
	if err != nil {
		return err
	}
	attrs := link.Attrs()
	cfg.Interface, cfg.PodHwAddr, cfg.MTU = attrs.Name, attrs.HardwareAddr.String(), min(attrs.MTU, maxMTU)
	if cfg.PodIPs, err = n.globalAddresses(link); err != nil {
		return err
	}
	if len(cfg.PodIPs) == 0 {
		return fmt.Errorf("interface %s has no IPv4 and no global IPv6 address; did the CNI plugin run?", attrs.Name)
	}
	cfg.PodIP = cfg.PodIPs[0]
	if cfg.Routes, err = n.podRoutes(link); err != nil {
		return err
	}
	cfg.Routes = addSubnets(cfg.Routes, subnets, attrs.Name)
	cfg.Neighbors, err = n.permanentNeighbors(link)
	return err
}

// podLink returns the interface of the default route, or the only one besides
// loopback: a pod on an isolated network has no default route.
func (n *namespace) podLink() (netlink.Link, error) {
	link, err := n.defaultLink()
	if err == nil {
		return link, nil
	}
	links, listErr := n.links()
	if listErr != nil {
		return nil, listErr
	}
	var candidates []netlink.Link
	for _, link := range links {
		if addrs, err := n.globalAddresses(link); err == nil && len(addrs) > 0 && link.Attrs().Name != "lo" {
			candidates = append(candidates, link)
		}
	}
	switch len(candidates) {
	case 0:
		return nil, fmt.Errorf("%w and no interface with an address; did the CNI plugin run?", err)
	case 1:
		return candidates[0], nil
	}
	return nil, errors.Join(err, errors.New("several interfaces have addresses, so the pod's primary one is unknown"))
}

// podRoutes lists the routes that leave by the pod's interface, both families.
func (n *namespace) podRoutes(link netlink.Link) ([]Route, error) {
	out := []Route{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := n.routes(link.Attrs().Index, family)
		if err != nil {
			return nil, err
		}
		// apf.json knows no metrics: of several routes to one destination only
		// the preferred one is carried over.
		slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
		for _, route := range routes {
			out = appendRoute(out, route, family, link.Attrs().Name)
		}
	}
	return out, nil
}

func appendRoute(out []Route, route netlink.Route, family int, dev string) []Route {
	protocol, ok := nameOf(protocols, route.Protocol)
	dst := destination(route, family)
	// The VM's kernel makes the link-local route itself.
	if !ok || dst.Addr().IsLinkLocalUnicast() && dst.Addr().Is6() {
		return out
	}
	r := Route{Dst: dst.String(), Dev: dev, Protocol: protocol}
	if route.Gw != nil {
		r.GW = route.Gw.String()
	}
	if scope, ok := nameOf(scopes, route.Scope); ok && route.Scope != netlink.SCOPE_UNIVERSE {
		r.Scope = scope
	}
	if slices.ContainsFunc(out, func(other Route) bool { return other.Dst == r.Dst }) {
		return out
	}
	return append(out, r)
}

func destination(route netlink.Route, family int) netip.Prefix {
	if route.Dst != nil {
		return toPrefix(route.Dst)
	}
	if family == netlink.FAMILY_V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// nameOf returns the name for a number. The empty name, which means a default
// when a file is read, is never written.
func nameOf[V comparable](names map[string]V, value V) (string, bool) {
	for name, v := range names {
		if v == value && name != "" {
			return name, true
		}
	}
	return "", false
}

// addSubnets adds a route to each subnet through the gateway of its family's
// default route, unless there is a route or no gateway.
func addSubnets(routes []Route, subnets []netip.Prefix, dev string) []Route {
	for _, subnet := range subnets {
		subnet = subnet.Masked()
		if slices.ContainsFunc(routes, func(r Route) bool { return r.Dst == subnet.String() }) {
			continue
		}
		i := slices.IndexFunc(routes, func(r Route) bool {
			dst, err := r.dst()
			return err == nil && dst.Bits() == 0 && dst.Addr().Is4() == subnet.Addr().Is4()
		})
		if i >= 0 && routes[i].GW != "" {
			routes = append(routes, Route{Dst: subnet.String(), GW: routes[i].GW, Dev: dev, Protocol: "static"})
		}
	}
	return routes
}

func (n *namespace) permanentNeighbors(link netlink.Link) ([]Neighbor, error) {
	neighbors, err := dump(func() ([]netlink.Neigh, error) {
		return n.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	var out []Neighbor
	for _, neighbor := range neighbors {
		if neighbor.State&netlink.NUD_PERMANENT == 0 || neighbor.IP == nil {
			continue
		}
		out = append(out, Neighbor{
			IP: neighbor.IP.String(), HwAddr: neighbor.HardwareAddr.String(),
			Dev: link.Attrs().Name, State: "permanent",
		})
	}
	return out, nil
}
