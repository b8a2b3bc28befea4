// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nicConfig is the wanted configuration of one interface.
type nicConfig struct {
	mac       net.HardwareAddr // empty: match by name
	name      string           // interface name to look for if mac is empty
	setName   string
	dhcp4     bool
	addresses []netip.Prefix
	routes    []route
	dns       []netip.Addr
	mtu       int // bytes; 0 leaves it
}

type route struct {
	to  netip.Prefix
	via netip.Addr // invalid: directly reachable
}

// loopbackUp starts the loopback interface, for programs that talk to themselves.
func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// firstNIC returns the hardware interface with the lowest index.
func firstNIC() (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if l.Type() == "device" && l.Attrs().Flags&net.FlagLoopback == 0 {
			return l, nil
		}
	}
	return nil, errors.New("the VM has no network interface")
}

// find returns the interface a configuration means.
func (c *nicConfig) find() (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		a := l.Attrs()
		if len(c.mac) > 0 && bytes.Equal(a.HardwareAddr, c.mac) || len(c.mac) == 0 && a.Name == c.name {
			return l, nil
		}
	}
	if len(c.mac) > 0 {
		return nil, fmt.Errorf("no interface has MAC address %s", c.mac)
	}
	return nil, fmt.Errorf("no interface is called %q", c.name)
}

// apply configures one interface; what DHCP gives comes later.
func (c *nicConfig) apply(link netlink.Link) error {
	name := link.Attrs().Name
	if c.setName != "" && c.setName != name {
		if err := netlink.LinkSetName(link, c.setName); err != nil {
			return fmt.Errorf("rename %s to %s: %w", name, c.setName, err)
		}
		name = c.setName
	}
	if c.mtu > 0 {
		if err := netlink.LinkSetMTU(link, c.mtu); err != nil {
			return fmt.Errorf("set MTU %d on %s: %w", c.mtu, name, err)
		}
	}
	// A kernel without IPv6 has no such file.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("0"), 0)
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	for _, a := range c.addresses {
		if err := addAddress(link, a); err != nil {
			return err
		}
	}
	for _, r := range c.routes {
		if err := r.add(link); err != nil {
			return err
		}
	}
	return nil
}

func addAddress(link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrReplace(link, a); err != nil {
		return fmt.Errorf("add address %s: %w", p, err)
	}
	return nil
}

func (r route) add(link netlink.Link) error {
	nr := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.to)}
	if r.via.IsValid() {
		nr.Gw = r.via.AsSlice()
	} else {
		nr.Scope = netlink.SCOPE_LINK
	}
	if err := netlink.RouteReplace(nr); err != nil {
		return fmt.Errorf("add route to %s via %s: %w", r.to, r.via, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// writeResolvConf replaces the resolver's configuration; no servers leave it
// as it is.
func writeResolvConf(servers []netip.Addr, search []string) error {
	if len(servers) == 0 {
		return nil
	}
	var b strings.Builder
	if len(search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(search, " "))
	}
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	return os.WriteFile("/etc/resolv.conf", []byte(b.String()), 0o644)
}

// cmdlineNIC returns the static configuration on the kernel command line:
// outrigger.ip=ADDR/LEN and outrigger.gw=ADDR.
func cmdlineNIC(args cmdline) (*nicConfig, error) {
	text := args["outrigger.ip"]
	if text == "" {
		return nil, nil
	}
	addr, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, fmt.Errorf("kernel argument outrigger.ip: %w", err)
	}
	c := &nicConfig{addresses: []netip.Prefix{addr}}
	if gw := args["outrigger.gw"]; gw != "" {
		via, err := netip.ParseAddr(gw)
		if err != nil {
			return nil, fmt.Errorf("kernel argument outrigger.gw: %w", err)
		}
		c.routes = []route{{to: defaultPrefix(via), via: via}}
	}
	return c, nil
}

func defaultPrefix(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
