// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// external is the VM's second interface, with the settings that are lost when
// it moves.
type external struct {
	link    netlink.Link
	addrs   []netlink.Addr
	gateway map[int]net.IP // by family
}

// moveExternal gives the pod the VM's second interface and its default route.
// A failure is logged and the pod keeps the way over its node: an operator who
// wants it otherwise has a NetworkPolicy for that.
func (e *guestEnd) moveExternal(tunnelInterface int) {
	if e.hasExternal(netlink.FAMILY_V4) || e.hasExternal(netlink.FAMILY_V6) {
		return
	}
	ext, err := e.vm.findExternal(tunnelInterface)
	if err == nil && !e.cfg.MetadataAccess {
		err = e.blockMetadata()
	}
	if err == nil {
		err = e.adopt(ext)
	}
	if err != nil {
		slog.Warn("the pod keeps its way to the outside over the node", "error", err)
		return
	}
	slog.Info("the pod reaches the outside through the VM's interface", "interface", ext.link.Attrs().Name)
}

// metadata is where a cloud's metadata service is, which returns the credentials
// of the VM's role and its user-data among other things: link-local addresses
// (AWS, Azure, GCP, IBM, OpenStack), and those of Azure's platform, Alibaba Cloud,
// and AWS and GCP on IPv6.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("fd00:ec2::/64"),
	netip.MustParsePrefix("fd20:ce::254/128"),
}

// blockMetadata runs before the pod gets its route: containers must not read
// what belongs to the VM. The pod's own link-local gateways have routes that
// are longer.
func (e *guestEnd) blockMetadata() error {
	for _, prefix := range metadata {
		if err := e.pod.RouteReplace(&netlink.Route{Dst: toIPNet(prefix), Type: unix.RTN_UNREACHABLE}); err != nil {
			return fmt.Errorf("keep the pod from the VM's metadata service at %s: %w", prefix, err)
		}
	}
	return nil
}

// findExternal returns the only other interface that has an address.
func (n *namespace) findExternal(tunnelInterface int) (*external, error) {
	links, err := n.links()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if link.Attrs().Index == tunnelInterface || link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		if addrs, err := n.globalAddresses(link); err == nil && len(addrs) > 0 {
			return n.describe(link)
		}
	}
	return nil, errors.New("the VM has no second interface with an address")
}

func (n *namespace) describe(link netlink.Link) (*external, error) {
	ext := &external{link: link, gateway: map[int]net.IP{}}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addrs, err := n.addrs(link, family)
		if err != nil {
			return nil, err
		}
		for _, addr := range addrs {
			if isUsable(addr) {
				ext.addrs = append(ext.addrs, addr)
			}
		}
		routes, err := n.routes(link.Attrs().Index, family)
		if err != nil {
			return nil, err
		}
		for _, route := range routes {
			if isDefault(route) && route.Gw != nil {
				ext.gateway[family] = route.Gw
			}
		}
	}
	if len(ext.gateway) == 0 {
		return nil, fmt.Errorf("interface %s has no default route", link.Attrs().Name)
	}
	return ext, nil
}

func (e *guestEnd) adopt(ext *external) error {
	name := ext.link.Attrs().Name
	if name == e.cfg.Interface {
		// The pod's interface has the name; any other will do for the VM's.
		name = "ext0"
		if err := errors.Join(e.vm.LinkSetDown(ext.link), e.vm.LinkSetName(ext.link, name)); err != nil {
			return fmt.Errorf("rename %s: %w", ext.link.Attrs().Name, err)
		}
	}
	if err := e.vm.LinkSetNsFd(ext.link, int(e.pod.ns)); err != nil {
		return fmt.Errorf("move %s into the pod's namespace: %w", name, err)
	}
	link, err := e.pod.LinkByName(name)
	if err == nil {
		err = e.pod.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	// What the kernel drops when an interface moves.
	for _, addr := range ext.addrs {
		err := e.pod.AddrReplace(link, &netlink.Addr{IPNet: addr.IPNet})
		if err != nil {
			return fmt.Errorf("add address %s to %s: %w", addr.IPNet, link.Attrs().Name, err)
		}
	}
	for family, gw := range ext.gateway {
		if err := e.replaceDefault(link, family, gw); err != nil {
			return fmt.Errorf("default route via %s: %w", gw, err)
		}
	}
	return nil
}

// replaceDefault adds before it removes, so that a failure leaves a way out.
func (e *guestEnd) replaceDefault(link netlink.Link, family int, gw net.IP) error {
	all := toIPNet(destination(netlink.Route{}, family))
	err := e.pod.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: all, Gw: gw, Flags: int(netlink.FLAG_ONLINK)})
	if err != nil {
		return err
	}
	routes, err := e.pod.routes(e.link.Attrs().Index, family)
	if err != nil {
		return err
	}
	for _, route := range routes {
		if isDefault(route) {
			if err := e.pod.RouteDel(&route); err != nil && !isNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// hasExternal reports whether an earlier run has moved an interface that now
// carries the default route of this family.
func (e *guestEnd) hasExternal(family int) bool {
	routes, err := e.pod.routes(0, family)
	return err == nil && slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return isDefault(r) && r.LinkIndex != e.link.Attrs().Index
	})
}
