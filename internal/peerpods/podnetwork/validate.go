// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TunnelVXLAN is the only tunnel type.
const TunnelVXLAN = "vxlan"

// DefaultVXLANPort is IANA's UDP port of VXLAN (RFC 7348).
const DefaultVXLANPort = 4789

// The words of apf.json for what rtnetlink(7) numbers.
var (
	protocols = map[string]netlink.RouteProtocol{
		"":       unix.RTPROT_STATIC,
		"static": unix.RTPROT_STATIC,
		"boot":   unix.RTPROT_BOOT,
		"dhcp":   unix.RTPROT_DHCP,
		"kernel": unix.RTPROT_KERNEL,
		"ra":     unix.RTPROT_RA,
	}
	scopes = map[string]netlink.Scope{
		"":         netlink.SCOPE_UNIVERSE,
		"universe": netlink.SCOPE_UNIVERSE,
		"site":     netlink.SCOPE_SITE,
		"link":     netlink.SCOPE_LINK,
		"host":     netlink.SCOPE_HOST,
		"nowhere":  netlink.SCOPE_NOWHERE,
	}
	neighborStates = map[string]int{
		"":           netlink.NUD_NONE,
		"none":       netlink.NUD_NONE,
		"incomplete": netlink.NUD_INCOMPLETE,
		"reachable":  netlink.NUD_REACHABLE,
		"stale":      netlink.NUD_STALE,
		"delay":      netlink.NUD_DELAY,
		"probe":      netlink.NUD_PROBE,
		"failed":     netlink.NUD_FAILED,
		"noarp":      netlink.NUD_NOARP,
		"permanent":  netlink.NUD_PERMANENT,
	}
)

// Validate reports everything in a configuration with which no tunnel can be
// made, each with its key. A VNI of 0 passes: it may not be assigned yet.
func (c *Config) Validate() error {
	errs := []error{
		check(c.TunnelType == TunnelVXLAN, "tunnel-type %q: only %q is supported", c.TunnelType, TunnelVXLAN),
		check(c.WorkerNodeIP.IsValid(), "worker-node-ip is missing"),
		check(validInterface(c.Interface), "interface %q is not an interface name", c.Interface),
		check(c.MTU >= minMTU4 && c.MTU <= maxMTU, "mtu %d: want %d to %d", c.MTU, minMTU4, maxMTU),
		check(c.UnderlayMTU >= 0 && c.UnderlayMTU <= maxMTU, "underlay-mtu %d: want 0 to %d", c.UnderlayMTU, maxMTU),
		check(c.VXLANPort >= 0 && c.VXLANPort <= 65535, "vxlan-port %d: want 0 to 65535", c.VXLANPort),
		check(c.VXLANID >= 0 && c.VXLANID <= maxVNI, "vxlan-id %d: want 0 to %d", c.VXLANID, maxVNI),
		c.validateMAC(),
		c.validatePodIPs(),
	}
	for _, route := range c.Routes {
		errs = append(errs, route.validate())
	}
	for _, neighbor := range c.Neighbors {
		errs = append(errs, neighbor.validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pod-network: %w", err)
	}
	return nil
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// validInterface checks the kernel's rule for names (dev_valid_name), and excludes lo.
func validInterface(name string) bool {
	return name != "" && len(name) < unix.IFNAMSIZ && name != "." && name != ".." && name != "lo" &&
		!strings.ContainsFunc(name, func(r rune) bool { return strings.ContainsRune("/: \t\n\v\f\r\x00\u00a0", r) }) &&
		!strings.Contains(name, "\xa0")
}

func (c *Config) validateMAC() error {
	mac, err := net.ParseMAC(c.PodHwAddr)
	if err != nil {
		return fmt.Errorf("pod-hw-addr: %w", err)
	}
	return check(len(mac) == 6 && mac[0]&1 == 0, "pod-hw-addr %q is not a unicast Ethernet address", c.PodHwAddr)
}

func (c *Config) validatePodIPs() error {
	if !c.PodIP.IsValid() {
		return errors.New("podip is missing")
	}
	if len(c.PodIPs) > 0 && !slices.Contains(c.PodIPs, c.PodIP) {
		return fmt.Errorf("podips %v lacks podip %s", c.PodIPs, c.PodIP)
	}
	for _, ip := range c.PodIPs {
		if !unmap(ip).IsValid() {
			return errors.New("podips has an entry that is empty or not a network")
		}
	}
	return nil
}

func (c *Config) podIPs() []netip.Prefix {
	if len(c.PodIPs) == 0 {
		return []netip.Prefix{unmap(c.PodIP)}
	}
	var list []netip.Prefix
	for _, ip := range c.PodIPs {
		list = append(list, unmap(ip))
	}
	return list
}

func (c *Config) port() int { return cmp.Or(c.VXLANPort, DefaultVXLANPort) }

func (r *Route) validate() error {
	dst, err := r.dst()
	if err != nil {
		return err
	}
	gw, err := r.gateway()
	if err != nil {
		return err
	}
	if gw.IsValid() && gw.Is4() != dst.Addr().Is4() {
		return fmt.Errorf("route to %s: gateway %s is of the other family", dst, gw)
	}
	if _, ok := protocols[r.Protocol]; !ok {
		return fmt.Errorf("route to %q: unknown protocol %q", r.Dst, r.Protocol)
	}
	if _, ok := scopes[r.Scope]; !ok {
		return fmt.Errorf("route to %q: unknown scope %q", r.Dst, r.Scope)
	}
	return nil
}

// dst returns the destination; the default route of IPv6 is written ::/0.
func (r *Route) dst() (netip.Prefix, error) {
	if r.Dst == "" {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), nil
	}
	dst, err := netip.ParsePrefix(r.Dst)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("route to %q: %w", r.Dst, err)
	}
	if dst = unmap(dst); !dst.IsValid() {
		return netip.Prefix{}, fmt.Errorf("route to %q: not a network", r.Dst)
	}
	return dst.Masked(), nil
}

// gateway returns an invalid address for a route without a gateway.
func (r *Route) gateway() (netip.Addr, error) {
	if r.GW == "" {
		return netip.Addr{}, nil
	}
	gw, err := netip.ParseAddr(r.GW)
	if err != nil || gw.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("route to %q: gateway %q is not an address", r.Dst, r.GW)
	}
	return gw.Unmap(), nil
}

func (n *Neighbor) validate() error {
	if ip, err := netip.ParseAddr(n.IP); err != nil || ip.Zone() != "" {
		return fmt.Errorf("neighbor %q is not an address", n.IP)
	}
	if _, err := net.ParseMAC(n.HwAddr); n.HwAddr != "" && err != nil {
		return fmt.Errorf("neighbor %s: %w", n.IP, err)
	}
	if _, ok := neighborStates[n.State]; !ok {
		return fmt.Errorf("neighbor %q: unknown state %q", n.IP, n.State)
	}
	return nil
}
