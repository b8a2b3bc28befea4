// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The network of nodes is a bridge in the namespace of the test. Its address is
// the control plane's, and the default route of the nodes.
const bridgeName = "ornodes"

const nodeBits = 24

var (
	gateway    = netip.MustParseAddr("192.168.99.1")
	everywhere = &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
)

// nodeAddress is that of the node with this number, from 1.
func nodeAddress(number int) netip.Addr {
	a := gateway.As4()
	a[3] += byte(number)
	return netip.AddrFrom4(a)
}

// podSubnet holds the pods of the node with this number.
func podSubnet(number int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(number), 0}), 24)
}

// joinNetwork makes the bridge if no control plane of this process has made it
// yet; it ends with the namespace. The default route leads nowhere: it is there
// because Kubernetes' programs look for one.
func joinNetwork(t testing.TB) {
	t.Helper()
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}})
	if errors.Is(err, os.ErrExist) {
		return
	}
	must(t, err, "make the bridge of the nodes")
	bridge, err := netlink.LinkByName(bridgeName)
	must(t, err, "find the bridge of the nodes")
	must(t, netlink.AddrAdd(bridge, address(gateway)), "give the control plane its address")
	must(t, netlink.LinkSetUp(bridge), "set the bridge of the nodes up")
	must(t, ignore(netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: everywhere, Scope: netlink.SCOPE_LINK}), syscall.EEXIST), "add a default route")
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), "let nodes reach each other")
}

// attach gives a node its interface, eth0, and routes to its pods.
func (n *Node) attach(t testing.TB) {
	t.Helper()
	bridge, err := netlink.LinkByName(bridgeName)
	must(t, err, "find the bridge of the nodes")
	peer := fmt.Sprintf("ornode%d", n.number)
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: peer, MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsPid(n.house.pid),
	}
	must(t, netlink.LinkAdd(veth), "make the node's interface")
	t.Cleanup(func() { netlink.LinkDel(veth) }) // gone with the node's namespace, but that takes a moment
	must(t, netlink.LinkSetUp(veth), "set the node's interface up")
	n.configure(t)
	n.route(t, podSubnet(n.number))
	if a := n.options.Address; a.IsValid() {
		n.Run(t, "/usr/sbin/ip", "address", "add", a.String()+"/32", "dev", "eth0")
		n.route(t, netip.PrefixFrom(a, 32))
	}
	// Of several clusters in one namespace the first has the Services.
	n.route(t, netip.MustParsePrefix(ServiceCIDR))
}

// configure sets addresses and routes inside of the node.
func (n *Node) configure(t testing.TB) {
	t.Helper()
	ns, err := netns.GetFromPid(n.house.pid)
	must(t, err, "open the node's network namespace")
	defer ns.Close()
	must(t, setUpMachine(ns, n.ip), "set the node's network up")
}

// setUpMachine gives a machine on the network of the nodes its address.
func setUpMachine(ns netns.NsHandle, ip netip.Addr) error {
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	for _, do := range []func() error{
		func() error { return h.LinkSetUp(lo) },
		func() error { return h.AddrAdd(eth0, address(ip)) },
		func() error { return h.LinkSetUp(eth0) },
		func() error {
			return h.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: everywhere, Gw: gateway.AsSlice()})
		},
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// route leads from the test's namespace over the node.
func (n *Node) route(t testing.TB, to netip.Prefix) {
	t.Helper()
	r := &netlink.Route{
		Dst: &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), 32)},
		Gw:  n.ip.AsSlice(),
	}
	err := netlink.RouteAdd(r)
	if errors.Is(err, syscall.EEXIST) {
		return
	}
	must(t, err, "add a route over the node")
	t.Cleanup(func() { netlink.RouteDel(r) })
}

func address(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(nodeBits, 32)}}
}

func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}

func must(t testing.TB, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
