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

// InspectOptions says where to look.
type InspectOptions struct {
	// Netns is the path of the pod's network namespace.
	Netns string
	// HostInterface carries the tunnels; empty means the interface of the
	// node's default route. Any other makes the tunnel dedicated: it ends at
	// the VM's second address.
	HostInterface string
	// NodeAddress is how VMs reach this node, if a provider knows better; it
	// wins over HostInterface and the default route.
	NodeAddress netip.Addr
	// PodSubnets are reached through the gateway of the pod's default route,
	// also when that is replaced by the VM's own.
	PodSubnets []netip.Prefix
	// ExternalViaPodVM gives the pod the VM's own way to the outside.
	ExternalViaPodVM bool
	// MetadataAccess lets such a pod reach the cloud's metadata service.
	MetadataAccess bool
	// SourceCheck drops what others than node and VM send into the tunnel.
	SourceCheck bool
}

// Inspect reads a pod's namespace and the node's end of its tunnel. It changes
// nothing. The caller assigns VXLANID, VXLANPort and Index. [ErrNoNetns] if
// the pod's namespace does not exist.
func Inspect(opts InspectOptions) (*Config, error) {
	node, err := currentNamespace()
	if err != nil {
		return nil, err
	}
	defer node.Close()
	pod, err := openNamespace(opts.Netns)
	if err != nil {
		return nil, fmt.Errorf("inspect pod network: %w", err)
	}
	defer pod.Close()
	if pod.ns.Equal(node.ns) {
		return nil, fmt.Errorf("inspect pod network: %s is the node's own namespace; a pod with hostNetwork cannot run in a VM", opts.Netns)
	}
	cfg := &Config{TunnelType: TunnelVXLAN, ExternalNetViaPodVM: opts.ExternalViaPodVM, MetadataAccess: opts.MetadataAccess, SourceCheck: opts.SourceCheck}
	link, addr, err := node.tunnelEnd(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("inspect the node's network: %w", err)
	}
	cfg.WorkerNodeIP = addr
	if link != nil {
		cfg.UnderlayMTU = min(link.Attrs().MTU, maxMTU)
	}
	if err := pod.inspectPod(cfg, opts.PodSubnets); err != nil {
		return nil, fmt.Errorf("inspect pod network namespace %s: %w", opts.Netns, err)
	}
	return cfg, cfg.Validate()
}

// tunnelEnd chooses the node's interface and address for the tunnel. The
// interface is nil when the provider makes it together with its first VM.
func (n *namespace) tunnelEnd(cfg *Config, opts InspectOptions) (netlink.Link, netip.Prefix, error) {
	if opts.NodeAddress.IsValid() {
		return n.linkWithAddress(opts.NodeAddress.Unmap())
	}
	primary, err := n.defaultLink()
	if opts.HostInterface == "" {
		if err != nil {
			return nil, netip.Prefix{}, fmt.Errorf("%w; name the interface that reaches the VMs with -host-interface", err)
		}
		return n.linkAddress(primary)
	}
	link, lookupErr := n.link(opts.HostInterface)
	if lookupErr != nil {
		return nil, netip.Prefix{}, lookupErr
	}
	if link == nil {
		return nil, netip.Prefix{}, fmt.Errorf("-host-interface %s: this node has no such interface", opts.HostInterface)
	}
	cfg.Dedicated = err == nil && link.Attrs().Index != primary.Attrs().Index
	return n.linkAddress(link)
}

func (n *namespace) linkWithAddress(want netip.Addr) (netlink.Link, netip.Prefix, error) {
	addrs, err := n.addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, netip.Prefix{}, fmt.Errorf("list addresses: %w", err)
	}
	for _, addr := range addrs {
		if prefix := toPrefix(addr.IPNet); prefix.Addr() == want {
			link, err := n.LinkByIndex(addr.LinkIndex)
			return link, prefix, err
		}
	}
	return nil, netip.PrefixFrom(want, want.BitLen()), nil
}

func (n *namespace) linkAddress(link netlink.Link) (netlink.Link, netip.Prefix, error) {
	addrs, err := n.globalAddresses(link)
	if err != nil {
		return nil, netip.Prefix{}, err
	}
	if len(addrs) == 0 {
		return nil, netip.Prefix{}, fmt.Errorf("interface %s has no IPv4 and no global IPv6 address", link.Attrs().Name)
	}
	return link, addrs[0], nil
}

// globalAddresses lists IPv4 before IPv6.
func (n *namespace) globalAddresses(link netlink.Link) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addrs, err := n.addrs(link, family)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
		}
		for _, addr := range addrs {
			if isUsable(addr) {
				out = append(out, toPrefix(addr.IPNet))
			}
		}
	}
	return out, nil
}

// isUsable leaves out link-local addresses and, of IPv6, those that the kernel
// made for a while or has found to be somebody else's.
func isUsable(addr netlink.Addr) bool {
	const unusable = unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	if toPrefix(addr.IPNet).Addr().Is6() && addr.Flags&(unusable|unix.IFA_F_TEMPORARY) != 0 {
		return false
	}
	return !addr.IP.IsLinkLocalUnicast() && addr.Scope < int(netlink.SCOPE_LINK)
}

// defaultLink returns the interface of the default route. If there are several it
// returns the lowest-numbered one, IPv4 before IPv6.
func (n *namespace) defaultLink() (netlink.Link, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := n.routes(0, family)
		if err != nil {
			return nil, err
		}
		var indexes []int
		for _, route := range routes {
			if isDefault(route) && route.LinkIndex != 0 {
				indexes = append(indexes, route.LinkIndex)
			}
		}
		if len(indexes) > 0 {
			return n.LinkByIndex(slices.Min(indexes))
		}
	}
	return nil, errors.New("there is no default route")
}

func isDefault(route netlink.Route) bool {
	return route.Dst == nil || toPrefix(route.Dst).Bits() == 0
}

// toPrefix returns the zero Prefix for a nil or malformed n.
func toPrefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}

// unmap returns an IPv4 prefix that is written as one of IPv6. Its length is that
// of IPv4, as upstream's adaptors write ::ffff:0.0.0.0/0, or counts from the
// beginning of the IPv6 address.
func unmap(p netip.Prefix) netip.Prefix {
	bits := p.Bits()
	switch {
	case !p.Addr().Is4In6():
		return p
	case bits >= 96:
		bits -= 96
	}
	return netip.PrefixFrom(p.Addr().Unmap(), bits)
}

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// hostPrefix covers addr alone.
func hostPrefix(addr netip.Addr) netip.Prefix {
	return netip.PrefixFrom(addr, addr.BitLen())
}

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}
