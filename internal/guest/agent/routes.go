// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
