// SPDX-License-Identifier: Apache-2.0

// Package podnetwork carries a pod's traffic between its network namespace on
// the node and its VM: a VXLAN tunnel for each pod, tc redirects on the node,
// and the pod's own interface rebuilt inside the VM.
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

// Config is the "pod-network" object of apf.json: what the VM must know to
// rebuild the pod's interface. The keys from podip to external-net-via-pod-vm
// are those of cloud-api-adaptor v0.22; podips, worker-node-ips,
// underlay-mtu, source-check and metadata-access are ours and absent from other adaptors' files.
type Config struct {
	// PodIP is the pod's first address with its prefix length.
	PodIP netip.Prefix `json:"podip"`
	// PodIPs holds every address of the pod, PodIP first, IPv4 and IPv6.
	PodIPs []netip.Prefix `json:"podips,omitempty"`
	// PodHwAddr is the MAC address of the pod's interface.
	PodHwAddr string `json:"pod-hw-addr"`
	// Interface is the name of the pod's interface, usually eth0.
	Interface string `json:"interface"`
	// WorkerNodeIP is the node's end of the tunnel with its prefix length.
	WorkerNodeIP netip.Prefix `json:"worker-node-ip"`
	// TunnelType is [TunnelVXLAN] or [TunnelTLS].
	TunnelType string `json:"tunnel-type"`
	// Routes and Neighbors are those of the pod's namespace.
	Routes    []Route    `json:"routes"`
	Neighbors []Neighbor `json:"neighbors,omitempty"`
	// MTU is that of the pod's interface on the node, in bytes.
	MTU int `json:"mtu"`
	// Index numbers the pod's tunnel on this node.
	Index int `json:"index"`
	// VXLANPort is the UDP port of the tunnel; 0 means 4789 (RFC 7348).
	VXLANPort int `json:"vxlan-port,omitempty"`
	// VXLANID is the tunnel's VNI, 24 bits.
	VXLANID int `json:"vxlan-id,omitempty"`
	// Dedicated says that the tunnel ends at the VM's second interface.
	Dedicated bool `json:"dedicated"`
	// ExternalNetViaPodVM gives the pod the VM's own way to the outside.
	ExternalNetViaPodVM bool `json:"external-net-via-pod-vm,omitempty"`
	// MetadataAccess lets a pod with ExternalNetViaPodVM reach the cloud's metadata
	// service, which tells it all that it tells the VM.
	MetadataAccess bool `json:"metadata-access,omitempty"`
	// UnderlayMTU is the MTU of the node's interface that carries the tunnel,
	// in bytes; 0 when unknown, the VM then uses that of its own interface.
	UnderlayMTU int `json:"underlay-mtu,omitempty"`
	// SourceCheck makes both ends drop what others send into the tunnel.
	SourceCheck bool `json:"source-check,omitempty"`
}

// Route is one route of the pod's main table. The keys of adaptors since v0.8.2 were Dst,
// GW and Dev: encoding/json ignores their case.
type Route struct {
	// Dst is a prefix; empty means 0.0.0.0/0.
	Dst string `json:"dst,omitempty"`
	// GW is empty for a route without gateway.
	GW string `json:"gw,omitempty"`
	// Dev is the interface's name.
	Dev string `json:"dev,omitempty"`
	// Protocol is static, boot, dhcp, kernel or ra.
	Protocol string `json:"protocol,omitempty"`
	// Scope is universe (also when empty), site, link, host or nowhere.
	Scope string `json:"scope,omitempty"`
}

// Neighbor is one permanent ARP or NDP entry.
type Neighbor struct {
	IP     string `json:"ip,omitempty"`
	HwAddr string `json:"hw-addr,omitempty"`
	Dev    string `json:"dev,omitempty"`
	// State is none (also when empty), incomplete, reachable, stale, delay,
	// probe, failed, noarp or permanent.
	State string `json:"state,omitempty"`
}

// TunnelVXLAN is the tunnel type of the kernel's tunnels, which encrypt nothing.
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
		check(c.TunnelType == TunnelVXLAN || c.encrypted(), "tunnel-type %q: only %q and %q are supported", c.TunnelType, TunnelVXLAN, TunnelTLS),
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
