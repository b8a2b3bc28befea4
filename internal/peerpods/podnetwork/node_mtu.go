// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Packets towards the pod that do not fit the tunnel need an answer ("packet
// too big") or fragments, or they vanish: nobody's IP stack sees what tc
// redirects. Three things see to it, from the narrow to the wide:
//
//   - the MTU of the pod interface's peer, if packets are routed to it (ptp,
//     Calico, Cilium): the node's IP stack fragments or answers by itself;
//   - a host route with an MTU, if the peer is a port of a bridge: the same for
//     what is routed to the bridge;
//   - the tunnel's own answers, for every frame however it came, also those
//     that another pod's interface sent through the bridge.

// hostRouteProtocol marks our host routes (rtnetlink(7): unassigned value).
const hostRouteProtocol netlink.RouteProtocol = 79

// formerMTU begins the tunnel's alias, where the peer's MTU is kept.
const formerMTU = "peer MTU was "

// ensureAnswers makes the tunnel a port of a bridge. Linux then (since 5.9)
// answers a packet that is too big for the tunnel's path with an ICMP error in
// the name of its destination, which the redirect carries back to the sender.
// The bridge has no other port, stays down and never sees a frame: the redirect
// comes first. On kernels without bridges this is skipped.
func (e *nodeEnd) ensureAnswers() (func() error, error) {
	if e.tunnelLink.Attrs().MasterIndex != 0 {
		return nil, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = answerBridgeName
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	err := e.pod.LinkAdd(bridge)
	if errors.Is(err, unix.EOPNOTSUPP) {
		slog.Warn("kernel has no bridges: packets too big for a pod's tunnel get no answer", "interface", e.cfg.Interface)
		return nil, nil
	}
	undo := func() error { return e.pod.deleteLink(answerBridgeName, "bridge") }
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("create %s: %w", answerBridgeName, err)
	}
	if err := e.pod.LinkSetMaster(e.tunnelLink, bridge); err != nil {
		return undo, fmt.Errorf("put %s into %s: %w", nodeTunnelName, answerBridgeName, err)
	}
	return undo, nil
}

func (e *nodeEnd) ensureInboundMTU() (func() error, error) {
	if e.tunnelLink.Attrs().MTU >= e.podLink.Attrs().MTU {
		return nil, nil
	}
	peer, err := findPeer(e.node, e.pod, e.podLink)
	if err != nil || peer == nil {
		return nil, err
	}
	if peer.Attrs().MasterIndex == 0 {
		return e.lowerPeerMTU(peer)
	}
	return e.ensureHostRoutes(peer.Attrs().MasterIndex)
}

// lowerPeerMTU notes the former MTU on the tunnel before it changes anything,
// so that a teardown by another process knows it.
func (e *nodeEnd) lowerPeerMTU(peer netlink.Link) (func() error, error) {
	mtu := e.tunnelLink.Attrs().MTU
	if peer.Attrs().MTU <= mtu {
		return nil, nil
	}
	note := formerMTU + strconv.Itoa(peer.Attrs().MTU)
	if err := e.pod.LinkSetAlias(e.tunnelLink, note); err != nil {
		return nil, fmt.Errorf("note the MTU of %s: %w", peer.Attrs().Name, err)
	}
	e.tunnelLink.Attrs().Alias = note
	if err := e.node.LinkSetMTU(peer, mtu); err != nil {
		return nil, fmt.Errorf("set MTU of %s to %d: %w", peer.Attrs().Name, mtu, err)
	}
	return func() error { return restorePeerMTU(e.node, e.pod, e.podLink, e.tunnelLink) }, nil
}

// restorePeerMTU leaves a peer alone whose MTU somebody else has changed since.
func restorePeerMTU(node, pod *namespace, podLink, tunnelLink netlink.Link) error {
	if podLink == nil || tunnelLink == nil {
		return nil
	}
	note, ok := strings.CutPrefix(tunnelLink.Attrs().Alias, formerMTU)
	if !ok {
		return nil
	}
	mtu, err := strconv.Atoi(note)
	if err != nil {
		return fmt.Errorf("alias of %s: %w", nodeTunnelName, err)
	}
	peer, err := findPeer(node, pod, podLink)
	if err != nil || peer == nil || peer.Attrs().MTU != tunnelLink.Attrs().MTU {
		return err
	}
	if err := node.LinkSetMTU(peer, mtu); err != nil {
		return fmt.Errorf("restore MTU of %s to %d: %w", peer.Attrs().Name, mtu, err)
	}
	return nil
}

// findPeer returns nil if the pod's interface is not a veth or its peer is not in the
// node's namespace.
func findPeer(node, pod *namespace, podLink netlink.Link) (netlink.Link, error) {
	if podLink.Type() != "veth" {
		return nil, nil
	}
	id, err := pod.GetNetNsIdByFd(int(node.ns))
	if err != nil {
		return nil, fmt.Errorf("namespace of the pod interface's peer: %w", err)
	}
	if id < 0 || podLink.Attrs().NetNsID != id {
		return nil, nil
	}
	peer, err := node.LinkByIndex(podLink.Attrs().ParentIndex)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("peer of the pod's interface: %w", err)
	}
	return peer, nil
}

// ensureHostRoutes serves pods on a bridge. The MTU is locked, else IPv6 does
// not heed it when it forwards (ip6_dst_mtu_maybe_forward).
func (e *nodeEnd) ensureHostRoutes(bridge int) (func() error, error) {
	changed := false
	undo := func() error { return e.node.removeHostRoutes(e.cfg) }
	for _, ip := range e.cfg.podIPs() {
		added, err := e.ensureHostRoute(ip.Addr().Unmap(), bridge)
		changed = changed || added
		if err != nil {
			return undo, err
		}
	}
	if !changed {
		return nil, nil
	}
	return undo, nil
}

// ensureHostRoute does nothing for an address that the node does not reach
// directly over the bridge.
func (e *nodeEnd) ensureHostRoute(ip netip.Addr, bridge int) (added bool, err error) {
	routes, err := e.node.RouteGet(net.IP(ip.AsSlice()))
	if err != nil || routes[0].LinkIndex != bridge || routes[0].Gw != nil {
		return false, nil
	}
	ours, err := e.node.hostRoutes(hostPrefix(ip))
	if err != nil || len(ours) > 0 {
		return false, err
	}
	route := &netlink.Route{
		LinkIndex: bridge, Dst: toIPNet(hostPrefix(ip)), Protocol: hostRouteProtocol,
		Scope: netlink.SCOPE_LINK, MTU: e.tunnelLink.Attrs().MTU, MTULock: true,
	}
	if ip.Is4() {
		route.Src = routes[0].Src
	}
	err = e.node.RouteAdd(route)
	if errors.Is(err, unix.EEXIST) {
		return false, nil // CNI's own host route: not ours to change
	}
	if err != nil {
		return false, fmt.Errorf("add host route to %s: %w", ip, err)
	}
	return true, nil
}

func (n *namespace) hostRoutes(dst netip.Prefix) ([]netlink.Route, error) {
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: hostRouteProtocol, Dst: toIPNet(dst)}
	routes, err := dump(func() ([]netlink.Route, error) {
		return n.RouteListFiltered(familyOf(dst.Addr()), filter,
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_DST)
	})
	if err != nil {
		return nil, fmt.Errorf("list host routes to %s: %w", dst, err)
	}
	return routes, nil
}

func (n *namespace) removeHostRoutes(cfg *Config) error {
	var errs []error
	for _, ip := range cfg.podIPs() {
		if !ip.IsValid() {
			continue
		}
		routes, err := n.hostRoutes(hostPrefix(ip.Addr().Unmap()))
		errs = append(errs, err)
		for _, route := range routes {
			if err := n.RouteDel(&route); err != nil && !isNotFound(err) {
				errs = append(errs, fmt.Errorf("remove host route to %s: %w", ip.Addr(), err))
			}
		}
	}
	return errors.Join(errs...)
}
