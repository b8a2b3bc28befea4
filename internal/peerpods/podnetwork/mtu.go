// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Bytes that the tunnel puts around a pod's IP packet: the inner Ethernet
// header (14), VXLAN (8, RFC 7348), UDP (8) and IP (20 or 40).
const (
	overhead4 = 14 + 8 + 8 + 20
	overhead6 = 14 + 8 + 8 + 40
)

// Smallest MTUs that the protocols allow (RFC 791, RFC 8200).
const (
	minMTU4 = 68
	minMTU6 = 1280
	maxMTU  = 65535
)

// TunnelMTU returns the largest IP packet, in bytes, that a pod may send through a
// tunnel between addresses of underlay's family. It is no larger than the pod's own
// MTU, and with the tunnel's headers no larger than the underlay's. An underlayMTU of
// 0 is unknown and limits nothing.
func TunnelMTU(podMTU, underlayMTU int, underlay netip.Addr) int {
	if underlayMTU == 0 {
		return podMTU
	}
	overhead := overhead6
	if underlay.Unmap().Is4() {
		overhead = overhead4
	}
	return min(podMTU, underlayMTU-overhead)
}

// tunnelMTU returns [TunnelMTU] for the smaller of the underlay MTUs known at the
// node's end and at this one.
func (c *Config) tunnelMTU(underlayMTU int) (int, error) {
	if c.UnderlayMTU != 0 {
		underlayMTU = min(underlayMTU, c.UnderlayMTU)
	}
	mtu := TunnelMTU(c.MTU, underlayMTU, c.WorkerNodeIP.Addr())
	least := minMTU4
	if slices.ContainsFunc(c.podIPs(), func(ip netip.Prefix) bool { return ip.Addr().Is6() }) {
		least = minMTU6
	}
	if mtu < least {
		return 0, fmt.Errorf("pod MTU %d over an underlay of MTU %d leaves %d bytes, the pod needs at least %d; raise the MTU of the interface with %s",
			c.MTU, underlayMTU, mtu, least, c.WorkerNodeIP.Addr())
	}
	return mtu, nil
}

// path is how packets to an address leave a namespace.
type path struct {
	source netip.Addr
	link   int
	// mtu is in bytes: that of the route if it has one, else the interface's.
	mtu int
}

// reaches returns an error unless dst can answer to source. While an
// interface's IPv6 address is tentative (RFC 4862, section 5.4) the kernel
// would send from another one, that of the link or even ::1, and a tunnel from
// there carries nothing, for ever.
func reaches(source, dst netip.Addr) bool {
	return source.IsValid() && !source.IsUnspecified() &&
		(!source.IsLoopback() || dst.IsLoopback()) && (source.Is4() || !source.IsLinkLocalUnicast() || dst.IsLinkLocalUnicast())
}

func (n *namespace) pathTo(dst netip.Addr) (*path, error) {
	routes, err := n.RouteGet(net.IP(dst.AsSlice()))
	if err != nil {
		return nil, fmt.Errorf("no route to %s: %w", dst, err)
	}
	route := firstHop(routes[0])
	link, err := n.LinkByIndex(route.LinkIndex)
	if err != nil {
		return nil, fmt.Errorf("interface of the route to %s: %w", dst, err)
	}
	source, _ := netip.AddrFromSlice(route.Src)
	mtu := min(link.Attrs().MTU, maxMTU) // loopback has 65536
	if route.MTU != 0 {
		mtu = min(mtu, route.MTU)
	}
	return &path{source: source.Unmap(), link: route.LinkIndex, mtu: mtu}, nil
}
