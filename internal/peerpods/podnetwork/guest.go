// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// underlayWait is how long SetupGuest waits for the VM's network: DHCP on some
// clouds takes minutes.
const underlayWait = 3 * time.Minute

// underlayPoll is short since the pod waits for it, and a check is cheap.
const underlayPoll = 20 * time.Millisecond

// addrconfMetric is what Linux gives the IPv6 routes it makes for addresses
// (IP6_RT_PRIO_ADDRCONF).
const addrconfMetric = 256

// guestEnd is the VM's half of its pod's network.
type guestEnd struct {
	vm, pod *namespace
	cfg     *Config
	link    netlink.Link
}

// SetupGuest rebuilds the pod's interface in the VM: it makes the namespace at
// podNetns if there is none, the tunnel to the node as the pod's interface in
// it, and the pod's addresses, routes and permanent neighbours. It waits up to
// three minutes for the VM's own network. hostInterface, if not empty, is where
// the tunnel must leave the VM. Calling it again, also after a crash, repairs
// what is missing and leaves a working tunnel alone.
func SetupGuest(ctx context.Context, podNetns, hostInterface string, cfg *Config) error {
	if err := setupGuest(ctx, podNetns, hostInterface, cfg); err != nil {
		return fmt.Errorf("set up the pod's network in the VM: %w", err)
	}
	return nil
}

func setupGuest(ctx context.Context, podNetns, hostInterface string, cfg *Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	vm, err := currentNamespace()
	if err != nil {
		return err
	}
	defer vm.Close()
	way, err := vm.waitUnderlay(ctx, hostInterface, cfg)
	if err != nil {
		return err
	}
	pod, err := ensureNamespace(podNetns)
	if err != nil {
		return err
	}
	defer pod.Close()
	end := &guestEnd{vm: vm, pod: pod, cfg: cfg}
	if cfg.SourceCheck && !cfg.encrypted() { // an encrypted tunnel has no port of its own
		node := cfg.farEnd(cfg.WorkerNodeIP.Addr())
		node.prepared = true
		if _, err := addRules(vm.ns, node); err != nil {
			return err
		}
	}
	if err := end.build(podNetns, way); err != nil {
		return err
	}
	if cfg.ExternalNetViaPodVM {
		end.moveExternal(way.link)
	}
	return nil
}

// PrepareGuest makes in the VM what of SetupGuest's work does not depend on the pod.
func PrepareGuest() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoNftables, err)
	}
	if _, err := addTable(conn); err != nil {
		return err
	}
	return conn.Flush()
}

// SetupIsolated makes the pod's namespace in the VM with nothing but loopback,
// for a sandbox that has no network namespace on the node. Calling it again is
// harmless.
func SetupIsolated(podNetns string) error {
	pod, err := ensureNamespace(podNetns)
	if err == nil {
		defer pod.Close()
		err = pod.loopbackUp()
	}
	if err != nil {
		return fmt.Errorf("set up the pod's namespace in the VM: %w", err)
	}
	return nil
}

// waitUnderlay waits until the VM reaches the node.
func (n *namespace) waitUnderlay(ctx context.Context, hostInterface string, cfg *Config) (*path, error) {
	ctx, cancel := context.WithTimeout(ctx, underlayWait)
	defer cancel()
	for {
		way, err := n.underlay(hostInterface, cfg.WorkerNodeIP.Addr().Unmap())
		if err == nil {
			return way, nil
		}
		if over := poll.Sleep(ctx, underlayPoll); over != nil {
			return nil, errors.Join(fmt.Errorf("wait for the VM's network: %w", over), err)
		}
	}
}

// underlay returns the VM's path to the node.
func (n *namespace) underlay(hostInterface string, node netip.Addr) (*path, error) {
	way, err := n.pathTo(node)
	if err != nil {
		return nil, err
	}
	if hostInterface == "" {
		return way, way.usable(node)
	}
	link, err := n.link(hostInterface)
	if err != nil {
		return nil, err
	}
	if link == nil {
		return nil, fmt.Errorf("-host-interface %s: the VM has no such interface", hostInterface)
	}
	if link.Attrs().Index == way.link {
		return way, way.usable(node)
	}
	return n.pathVia(link, node)
}

// usable returns an error while the path's source address cannot be used for a
// tunnel.
func (p *path) usable(dst netip.Addr) error {
	if reaches(p.source, dst) {
		return nil
	}
	return fmt.Errorf("no address to reach %s from: the kernel would take %s; check whether an address of the interface is tentative or failed (ip -6 address)", dst, p.source)
}

// pathVia uses the address of an interface that the route to dst does not
// leave by; replies come in there since the node sends to that address.
func (n *namespace) pathVia(link netlink.Link, dst netip.Addr) (*path, error) {
	addrs, err := n.globalAddresses(link)
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if addr.Addr().Is4() == dst.Is4() {
			return &path{source: addr.Addr(), link: link.Attrs().Index, mtu: min(link.Attrs().MTU, maxMTU)}, nil
		}
	}
	return nil, fmt.Errorf("interface %s has no address of the family of the node's address %s", link.Attrs().Name, dst)
}

func (e *guestEnd) build(podNetns string, way *path) error {
	ensureInterface := func() error { return e.ensureInterface(way) }
	if e.cfg.encrypted() {
		ensureInterface = func() error { return e.ensureFrameInterface(podNetns) }
	}
	for _, configure := range []func() error{
		e.pod.loopbackUp, ensureInterface, e.setAddresses, e.setRoutes, e.setNeighbors,
	} {
		if err := configure(); err != nil {
			return err
		}
	}
	return nil
}

func (n *namespace) loopbackUp() error {
	lo, err := n.LinkByName("lo")
	if err == nil {
		err = n.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// ensureInterface makes the tunnel under the pod's interface name at once, or takes
// one that an earlier run left.
func (e *guestEnd) ensureInterface(way *path) error {
	mtu, err := e.cfg.tunnelMTU(way.mtu)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(e.cfg.PodHwAddr)
	if err != nil {
		return err
	}
	t := &tunnel{
		name: e.cfg.Interface, vni: e.cfg.VXLANID, port: e.cfg.port(), mtu: mtu, mac: mac,
		local: way.source, remote: e.cfg.WorkerNodeIP.Addr().Unmap(),
	}
	link, _, err := t.ensure(e.vm, e.pod)
	if err != nil {
		return err
	}
	return e.repairInterface(link, mtu, mac)
}

// repairInterface gives the pod's interface MAC and MTU, which one that an earlier run
// left may lack, and sets it up.
func (e *guestEnd) repairInterface(link netlink.Link, mtu int, mac net.HardwareAddr) error {
	e.link = link
	if !slices.Equal(link.Attrs().HardwareAddr, mac) {
		if err := e.pod.LinkSetHardwareAddr(link, mac); err != nil {
			return fmt.Errorf("repair %s: %w", e.cfg.Interface, err)
		}
	}
	if link.Attrs().MTU != mtu {
		if err := e.pod.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("repair %s: %w", e.cfg.Interface, err)
		}
	}
	if err := e.pod.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", e.cfg.Interface, err)
	}
	return nil
}

// setAddresses adds no subnet routes (those of the pod's namespace count, and
// ptp and Calico have none) and skips duplicate detection, since the address
// is on the node too.
func (e *guestEnd) setAddresses() error {
	for _, ip := range e.cfg.podIPs() {
		addr := &netlink.Addr{IPNet: toIPNet(ip), Flags: unix.IFA_F_NOPREFIXROUTE}
		if ip.Addr().Is6() {
			addr.Flags |= unix.IFA_F_NODAD
		}
		if err := e.pod.AddrReplace(e.link, addr); err != nil {
			return fmt.Errorf("add address %s to %s: %w", ip, e.cfg.Interface, err)
		}
	}
	return nil
}

// setRoutes adds routes without gateway first: the gateways are found by them.
func (e *guestEnd) setRoutes() error {
	var direct, indirect []Route
	for _, route := range e.cfg.Routes {
		switch {
		case route.Dev != "" && route.Dev != e.cfg.Interface:
			slog.Warn("route of another interface is not set up in the VM", "destination", route.Dst, "interface", route.Dev)
		case route.GW == "":
			direct = append(direct, route)
		default:
			indirect = append(indirect, route)
		}
	}
	for _, route := range append(direct, indirect...) {
		if err := e.setRoute(route); err != nil {
			return err
		}
	}
	return nil
}

// setRoute treats the gateway as on-link where no other route leads to it.
func (e *guestEnd) setRoute(r Route) error {
	dst, err := r.dst()
	if err != nil {
		return err
	}
	gw, err := r.gateway()
	if err != nil {
		return err
	}
	if dst.Bits() == 0 && e.hasExternal(familyOf(dst.Addr())) {
		return nil
	}
	route := &netlink.Route{
		LinkIndex: e.link.Attrs().Index, Dst: toIPNet(dst), Gw: gw.AsSlice(),
		Protocol: protocols[r.Protocol], Scope: scopes[r.Scope],
	}
	if dst.Addr().Is6() && route.Protocol == unix.RTPROT_KERNEL {
		route.Priority = addrconfMetric
	}
	err = e.pod.RouteReplace(route)
	if err != nil && gw.IsValid() {
		route.Flags |= int(netlink.FLAG_ONLINK)
		err = e.pod.RouteReplace(route)
	}
	if err != nil {
		return fmt.Errorf("add route to %s via %q: %w", dst, r.GW, err)
	}
	return nil
}

// setNeighbors skips entries that the kernel creates by itself.
func (e *guestEnd) setNeighbors() error {
	for _, n := range e.cfg.Neighbors {
		state := neighborStates[n.State]
		if state&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 || n.HwAddr == "" || n.Dev != "" && n.Dev != e.cfg.Interface {
			continue
		}
		mac, err := net.ParseMAC(n.HwAddr)
		if err != nil {
			return fmt.Errorf("neighbour %s: %w", n.IP, err)
		}
		neigh := &netlink.Neigh{LinkIndex: e.link.Attrs().Index, State: state, IP: net.ParseIP(n.IP), HardwareAddr: mac}
		if err := e.pod.NeighSet(neigh); err != nil {
			return fmt.Errorf("add neighbour %s: %w", n.IP, err)
		}
	}
	return nil
}
