// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownerMark are the first bytes of every bridge of ours; the others tell the
// state folder. A MAC is set when the bridge is made, an alias only after, so
// that a crash in between leaves no bridge of unknown origin.
var ownerMark = []byte{0x02, 0x6f, 0x72}

const aliasPrefix = "outrigger:"

func (n *Network) bridgeMAC() net.HardwareAddr {
	sum, _ := hex.DecodeString(digest(n.cfg.StateDir, n.cfg.Bridge)[:6])
	return append(bytes.Clone(ownerMark), sum...)
}

// ownBridge returns nil when there is no bridge, or none of ours.
func (n *Network) ownBridge() (netlink.Link, error) {
	link, err := findLink(n.cfg.Bridge)
	if link == nil || err != nil || !bytes.Equal(link.Attrs().HardwareAddr, n.bridgeMAC()) {
		return nil, err
	}
	return link, nil
}

func (n *Network) ensureBridge(st *state) (netlink.Link, error) {
	link, err := findLink(n.cfg.Bridge)
	if err != nil {
		return nil, err
	}
	if link != nil {
		if link, err = n.takeOver(link); err != nil {
			return nil, err
		}
	}
	if link == nil {
		if link, err = n.createBridge(st); err != nil {
			return nil, err
		}
	}
	return link, n.configureBridge(st, link)
}

// takeOver returns the link if it is ours, nil after it removed an abandoned
// one, and ErrClash if it is somebody else's.
func (n *Network) takeOver(link netlink.Link) (netlink.Link, error) {
	attrs := link.Attrs()
	if bytes.Equal(attrs.HardwareAddr, n.bridgeMAC()) {
		return link, nil
	}
	if !bytes.HasPrefix(attrs.HardwareAddr, ownerMark) || link.Type() != "bridge" {
		return nil, fmt.Errorf("%w: an interface %s exists that is not ours; choose another bridge name", ErrClash, attrs.Name)
	}
	owner := strings.TrimPrefix(attrs.Alias, aliasPrefix)
	if _, err := os.Stat(filepath.Join(owner, "leases.json")); owner != "" && err == nil {
		return nil, fmt.Errorf("%w: bridge %s belongs to the instances in %s; choose another bridge name, or use that state folder",
			ErrClash, attrs.Name, owner)
	}
	n.log().Warn("removing a bridge whose state folder is gone", "folder", owner)
	if err := n.removeMembers(link, nil); err != nil {
		return nil, err
	}
	return nil, deleteLink(attrs.Name)
}

// createBridge leaves the spanning tree off, as the kernel has it for a new
// bridge: a port then forwards at once, without the forward delay.
func (n *Network) createBridge(st *state) (netlink.Link, error) {
	if err := CheckFree(st.Subnets); err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = n.cfg.Bridge, st.MTU, n.bridgeMAC()
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("create bridge: %w", err)
	}
	link, err := netlink.LinkByName(n.cfg.Bridge)
	if err != nil {
		return nil, fmt.Errorf("find bridge just created: %w", err)
	}
	if err := netlink.LinkSetAlias(link, aliasPrefix+n.cfg.StateDir); err != nil {
		return nil, fmt.Errorf("set alias of bridge: %w", err)
	}
	return link, nil
}

func (n *Network) configureBridge(st *state, link netlink.Link) error {
	// VMs must not teach this machine routes (router advertisements).
	settings := map[string]string{"/proc/sys/net/ipv6/conf/" + n.cfg.Bridge + "/accept_ra": "0"}
	for _, subnet := range st.Subnets {
		if subnet.Addr().Is6() {
			settings["/proc/sys/net/ipv6/conf/"+n.cfg.Bridge+"/disable_ipv6"] = "0"
		}
	}
	if err := setKernel(settings); err != nil {
		return err
	}
	if err := setMTU(link, st.MTU); err != nil {
		return err
	}
	for _, subnet := range st.Subnets {
		addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(hostAddr(subnet, 1), subnet.Bits())), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("add address %s to bridge: %w", addr.IPNet, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set bridge up: %w", err)
	}
	return nil
}

func setMTU(link netlink.Link, mtu int) error {
	if attrs := link.Attrs(); attrs.MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU %d of %s: %w", mtu, attrs.Name, err)
		}
	}
	return nil
}

// setKernel writes those files under /proc/sys whose value is another. A file
// that does not exist belongs to something this kernel lacks.
func setKernel(settings map[string]string) error {
	for path, value := range settings {
		now, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(now)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			return fmt.Errorf("set %s to %s: %w", path, value, err)
		}
	}
	return nil
}

// CheckFree returns [ErrClash] if something on this machine uses one of the subnets
// already. What is on the interfaces that are named own does not count.
func CheckFree(subnets []netip.Prefix, own ...string) error {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, route := range routes {
		for _, subnet := range subnets {
			if name := linkName(route.LinkIndex); clashes(route, subnet) && !slices.Contains(own, name) {
				return fmt.Errorf("%w: subnet %s overlaps %s, which is on %s; choose another subnet", ErrClash, subnet, route.Dst, name)
			}
		}
	}
	return nil
}

// defaultLike is the longest prefix length of a route that counts as a way to
// "everywhere else", as VPNs set with 0.0.0.0/1, not as a network.
const defaultLike = 7

func clashes(route netlink.Route, subnet netip.Prefix) bool {
	if route.Dst == nil || (route.Type != unix.RTN_UNICAST && route.Type != unix.RTN_LOCAL) {
		return false
	}
	addr, ok := netip.AddrFromSlice(route.Dst.IP)
	bits, _ := route.Dst.Mask.Size()
	return ok && bits > defaultLike && netip.PrefixFrom(addr.Unmap(), bits).Overlaps(subnet)
}

func linkName(index int) string {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return link.Attrs().Name
}

// mtu is the configured MTU or else that of the machine's way out, so that
// what a VM sends needs no fragments.
func (n *Network) mtu() int {
	if n.cfg.MTU != 0 {
		return n.cfg.MTU
	}
	mtu := defaultMTU
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return mtu
	}
	for _, route := range routes {
		if link, err := netlink.LinkByIndex(route.LinkIndex); err == nil && isDefault(route) {
			mtu = min(mtu, link.Attrs().MTU)
		}
	}
	return max(mtu, minMTU)
}

func isDefault(route netlink.Route) bool {
	if route.Dst == nil {
		return true
	}
	bits, _ := route.Dst.Mask.Size()
	return bits == 0 && route.Dst.IP.IsUnspecified()
}

func (n *Network) linkMTU(name string) int {
	if link, err := findLink(name); err == nil && link != nil {
		return link.Attrs().MTU
	}
	return n.mtu()
}

// findLink returns nil when there is no such interface.
func findLink(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", name, err)
	}
	return link, nil
}

func notFound(err error) bool {
	return errors.As(err, &netlink.LinkNotFoundError{}) || errors.Is(err, unix.ENODEV)
}

func deleteLink(name string) error {
	link, err := findLink(name)
	if link == nil || err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !notFound(err) {
		return fmt.Errorf("delete interface %s: %w", name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
