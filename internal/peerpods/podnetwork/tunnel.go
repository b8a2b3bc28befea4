// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrVNIInUse means that the node already has a tunnel with this VNI and port,
// possibly in a namespace that has no name.
var ErrVNIInUse = errors.New("the VXLAN network identifier is in use on this machine")

// tunnel is one end of a pod's tunnel.
type tunnel struct {
	name          string
	vni, port     int
	local, remote netip.Addr
	mtu           int
	mac           net.HardwareAddr // nil lets the kernel choose
}

// ensure makes the tunnel's interface in the namespace dest. Its UDP socket
// belongs to the namespace underlay for good: the kernel binds a VXLAN device
// to the namespace of the caller, not to the one it is created in. It gets its
// name afterwards, because the kernel also refuses names that the caller's
// namespace has, and a VM's own interface is often called eth0 like its pod's.
func (t *tunnel) ensure(underlay, dest *namespace) (link netlink.Link, created bool, err error) {
	link, err = dest.link(t.name)
	if err != nil {
		return nil, false, err
	}
	if link != nil && t.matches(link) {
		return link, false, nil
	}
	if link != nil {
		if link.Type() != "vxlan" {
			return nil, false, fmt.Errorf("interface %s exists in the pod's namespace and is of type %s", t.name, link.Type())
		}
		if err := dest.LinkDel(link); err != nil {
			return nil, false, fmt.Errorf("replace tunnel %s: %w", t.name, err)
		}
	}
	// An earlier run may have been killed before the device got its name.
	if err := dest.deleteLink(passingName(t.vni), "vxlan"); err != nil {
		return nil, false, err
	}
	if err := t.create(underlay, dest); err != nil {
		return nil, false, err
	}
	link, err = dest.rename(passingName(t.vni), t.name)
	if err != nil {
		return nil, true, errors.Join(err, dest.deleteLink(passingName(t.vni), "vxlan"))
	}
	return link, true, nil
}

// passingName returns the temporary name of a tunnel.
func passingName(vni int) string { return fmt.Sprintf("ppvx%x", vni) }

func (n *namespace) rename(from, to string) (netlink.Link, error) {
	link, err := n.LinkByName(from)
	if err != nil {
		return nil, fmt.Errorf("tunnel %s is missing after it was created: %w", from, err)
	}
	if err := n.LinkSetName(link, to); err != nil {
		return nil, fmt.Errorf("rename tunnel %s to %s: %w", from, to, err)
	}
	return n.LinkByName(to)
}

func (t *tunnel) create(underlay, dest *namespace) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = passingName(t.vni), t.mtu, t.mac
	attrs.Namespace = netlink.NsFd(dest.ns)
	err := underlay.LinkAdd(&netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: t.vni, Port: t.port,
		SrcAddr: t.local.AsSlice(), Group: t.remote.AsSlice(),
	})
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("%w (%d, UDP port %d)", ErrVNIInUse, t.vni, t.port)
	}
	if err != nil {
		return fmt.Errorf("create tunnel %s from %s to %s: %w", t.name, t.local, t.remote, err)
	}
	return nil
}

func (t *tunnel) matches(link netlink.Link) bool {
	have, ok := link.(*netlink.Vxlan)
	return ok && have.VxlanId == t.vni && have.Port == t.port &&
		have.SrcAddr.Equal(t.local.AsSlice()) && have.Group.Equal(t.remote.AsSlice())
}

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
// node's end and at this one. An encrypted tunnel is a stream, which limits nothing.
func (c *Config) tunnelMTU(underlayMTU int) (int, error) {
	switch {
	case c.encrypted():
		underlayMTU = 0
	case c.UnderlayMTU != 0:
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
