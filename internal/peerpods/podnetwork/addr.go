// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

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
