// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// inPodNetNS calls fn with a netlink connection into the pod's network
// namespace.
func (a *Agent) inPodNetNS(fn func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPath(a.cfg.PodNetNS)
	if err != nil {
		return status.Errorf(codes.FailedPrecondition, "the pod has no network namespace at %s: %v", a.cfg.PodNetNS, err)
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fail(codes.Internal, err)
	}
	defer handle.Close()
	return fail(codes.Internal, fn(handle))
}

// networkStats returns the statistics of the pod's interfaces; none if the pod has no
// network namespace.
func (a *Agent) networkStats() []*agent.NetworkStats {
	var out []*agent.NetworkStats
	a.inPodNetNS(func(h *netlink.Handle) error {
		links, err := h.LinkList()
		for _, link := range links {
			attrs := link.Attrs()
			s := attrs.Statistics
			if s == nil || attrs.Flags&net.FlagLoopback != 0 {
				continue
			}
			out = append(out, &agent.NetworkStats{
				Name: attrs.Name, RxBytes: s.RxBytes, RxPackets: s.RxPackets, RxErrors: s.RxErrors, RxDropped: s.RxDropped,
				TxBytes: s.TxBytes, TxPackets: s.TxPackets, TxErrors: s.TxErrors, TxDropped: s.TxDropped,
			})
		}
		return err
	})
	return out
}

// ListInterfaces returns the pod's interfaces.
func (a *Agent) ListInterfaces(context.Context, *agent.ListInterfacesRequest) (*agent.Interfaces, error) {
	out := &agent.Interfaces{}
	err := a.inPodNetNS(func(h *netlink.Handle) error {
		links, err := h.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			described, err := describe(h, link)
			if err != nil {
				return err
			}
			out.Interfaces = append(out.Interfaces, described)
		}
		return nil
	})
	return out, err
}

func describe(h *netlink.Handle, link netlink.Link) (*agent.Interface, error) {
	addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	attrs := link.Attrs()
	out := &agent.Interface{
		Device: attrs.Name, Name: attrs.Name, Mtu: uint64(attrs.MTU), HwAddr: attrs.HardwareAddr.String(),
		Type: link.Type(), RawFlags: attrs.RawFlags,
	}
	for _, addr := range addrs {
		ones, _ := addr.Mask.Size()
		family := agent.IPFamily_v4
		if addr.IP.To4() == nil {
			family = agent.IPFamily_v6
		}
		out.IPAddresses = append(out.IPAddresses, &agent.IPAddress{Family: family, Address: addr.IP.String(), Mask: strconv.Itoa(ones)})
	}
	return out, nil
}

// UpdateInterface renames the interface with the given hardware address, and
// sets its addresses and MTU.
func (a *Agent) UpdateInterface(_ context.Context, req *agent.UpdateInterfaceRequest) (*agent.Interface, error) {
	want := req.GetInterface()
	var out *agent.Interface
	err := a.inPodNetNS(func(h *netlink.Handle) error {
		link, err := findLink(h, want)
		if err != nil {
			return err
		}
		if err := configure(h, link, want); err != nil {
			return err
		}
		if link, err = h.LinkByIndex(link.Attrs().Index); err != nil {
			return err
		}
		out, err = describe(h, link)
		return err
	})
	return out, err
}

func findLink(h *netlink.Handle, want *agent.Interface) (netlink.Link, error) {
	links, err := h.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		attrs := link.Attrs()
		if want.GetHwAddr() != "" && attrs.HardwareAddr.String() == want.GetHwAddr() ||
			want.GetHwAddr() == "" && (attrs.Name == want.GetDevice() || attrs.Name == want.GetName()) {
			return link, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "the pod has no interface %s with address %q", want.GetName(), want.GetHwAddr())
}

func configure(h *netlink.Handle, link netlink.Link, want *agent.Interface) error {
	wanted := make(map[string]*netlink.Addr)
	for _, ip := range want.GetIPAddresses() {
		addr, err := netlink.ParseAddr(ip.GetAddress() + "/" + ip.GetMask())
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "address %s/%s: %v", ip.GetAddress(), ip.GetMask(), err)
		}
		wanted[addr.IPNet.String()] = addr
	}
	have, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, addr := range have {
		_, keep := wanted[addr.IPNet.String()]
		if !keep && !addr.IP.IsLinkLocalUnicast() {
			if err := h.AddrDel(link, &addr); err != nil {
				return err
			}
		}
	}
	for _, addr := range wanted {
		if err := h.AddrReplace(link, addr); err != nil {
			return err
		}
	}
	return configureLink(h, link, want)
}

func configureLink(h *netlink.Handle, link netlink.Link, want *agent.Interface) error {
	if mtu := int(want.GetMtu()); mtu > 0 && mtu != link.Attrs().MTU {
		if err := h.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU %d: %w", mtu, err)
		}
	}
	if name := want.GetName(); name != "" && name != link.Attrs().Name {
		if err := h.LinkSetName(link, name); err != nil {
			return fmt.Errorf("rename %s to %s: %w", link.Attrs().Name, name, err)
		}
	}
	return h.LinkSetUp(link)
}

// AddARPNeighbors adds permanent neighbour entries.
func (a *Agent) AddARPNeighbors(_ context.Context, req *agent.AddARPNeighborsRequest) (*emptypb.Empty, error) {
	err := a.inPodNetNS(func(h *netlink.Handle) error {
		var errs []error
		for _, n := range req.GetNeighbors().GetARPNeighbors() {
			errs = append(errs, addNeighbor(h, n))
		}
		return errors.Join(errs...)
	})
	return &emptypb.Empty{}, err
}

func addNeighbor(h *netlink.Handle, n *agent.ARPNeighbor) error {
	ip := net.ParseIP(n.GetToIPAddress().GetAddress())
	mac, err := net.ParseMAC(n.GetLladdr())
	if ip == nil || err != nil {
		return status.Errorf(codes.InvalidArgument, "neighbour %q at %q: not an address", n.GetToIPAddress().GetAddress(), n.GetLladdr())
	}
	link, err := h.LinkByName(n.GetDevice())
	if err != nil {
		return fmt.Errorf("interface %s: %w", n.GetDevice(), err)
	}
	state := int(n.GetState())
	if state == 0 {
		state = netlink.NUD_PERMANENT
	}
	return h.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: ip, HardwareAddr: mac, State: state, Flags: int(n.GetFlags())})
}

// ListRoutes returns the pod's main routing table.
func (a *Agent) ListRoutes(context.Context, *agent.ListRoutesRequest) (*agent.Routes, error) {
	out := &agent.Routes{}
	err := a.inPodNetNS(func(h *netlink.Handle) (err error) {
		out.Routes, err = listRoutes(h)
		return err
	})
	return out, err
}

func listRoutes(h *netlink.Handle) ([]*agent.Route, error) {
	routes, err := h.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	var out []*agent.Route
	for _, route := range routes {
		if described := describeRoute(h, route); described != nil {
			out = append(out, described)
		}
	}
	return out, nil
}

func describeRoute(h *netlink.Handle, route netlink.Route) *agent.Route {
	link, err := h.LinkByIndex(route.LinkIndex)
	if err != nil || route.Protocol == unix.RTPROT_RA {
		return nil
	}
	out := &agent.Route{
		Device: link.Attrs().Name, Scope: uint32(route.Scope), Flags: uint32(route.Flags), Mtu: uint32(route.MTU),
		Family: agent.IPFamily_v4, Gateway: text(route.Gw), Source: text(route.Src),
	}
	if route.Family == unix.AF_INET6 {
		out.Family = agent.IPFamily_v6
	}
	if dst := route.Dst; dst != nil {
		if ones, _ := dst.Mask.Size(); ones > 0 || !dst.IP.IsUnspecified() {
			out.Dest = dst.String()
		}
	}
	return out
}

func text(ip net.IP) string {
	if ip == nil {
		return ""
	}
	return ip.String()
}

// UpdateRoutes makes the pod's routes those of the request. What the kernel
// keeps for addresses and multicast by itself stays.
func (a *Agent) UpdateRoutes(_ context.Context, req *agent.UpdateRoutesRequest) (*agent.Routes, error) {
	out := &agent.Routes{}
	err := a.inPodNetNS(func(h *netlink.Handle) error {
		wanted, err := parseRoutes(h, req.GetRoutes().GetRoutes())
		if err != nil {
			return err
		}
		if err := removeRoutes(h); err != nil {
			return err
		}
		for _, route := range wanted {
			if err := h.RouteReplace(&route); err != nil {
				return fmt.Errorf("route %v: %w", route, err)
			}
		}
		out.Routes, err = listRoutes(h)
		return err
	})
	return out, err
}

// parseRoutes sorts those without a gateway first: gateways have to be
// reachable when a route through them is added.
func parseRoutes(h *netlink.Handle, routes []*agent.Route) ([]netlink.Route, error) {
	out := make([]netlink.Route, 0, len(routes))
	for _, route := range routes {
		parsed, err := parseRoute(h, route)
		if err != nil {
			return nil, err
		}
		out = append(out, parsed)
	}
	slices.SortStableFunc(out, func(x, y netlink.Route) int { return cmp.Compare(len(x.Gw), len(y.Gw)) })
	return out, nil
}

func parseRoute(h *netlink.Handle, route *agent.Route) (netlink.Route, error) {
	link, err := h.LinkByName(route.GetDevice())
	if err != nil {
		return netlink.Route{}, fmt.Errorf("route to %q: interface %q: %w", route.GetDest(), route.GetDevice(), err)
	}
	out := netlink.Route{
		LinkIndex: link.Attrs().Index, Scope: netlink.Scope(route.GetScope()), Flags: int(route.GetFlags()), MTU: int(route.GetMtu()),
		Gw: net.ParseIP(route.GetGateway()), Src: net.ParseIP(route.GetSource()), Family: unix.AF_INET,
	}
	if route.GetFamily() == agent.IPFamily_v6 {
		out.Family = unix.AF_INET6
	}
	if dest := route.GetDest(); dest != "" && dest != "default" {
		if _, out.Dst, err = net.ParseCIDR(dest); err != nil {
			return netlink.Route{}, status.Errorf(codes.InvalidArgument, "route to %q: %v", dest, err)
		}
	}
	return out, nil
}

func removeRoutes(h *netlink.Handle) error {
	routes, err := h.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, route := range routes {
		if route.Protocol == unix.RTPROT_KERNEL || route.Type != unix.RTN_UNICAST {
			continue
		}
		if err := h.RouteDel(&route); err != nil && err != unix.ESRCH {
			return fmt.Errorf("remove route %v: %w", route, err)
		}
	}
	return nil
}
