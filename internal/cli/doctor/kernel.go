// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (m Machine) nft(context.Context) Result {
	const fix = "use a kernel with nf_tables and NAT (CONFIG_NF_TABLES, CONFIG_NFT_NAT), as root"
	conn, err := nftables.New()
	if err != nil {
		return fail(fix, "%v", err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		return fail(fix, "tables cannot be listed: %v", err)
	}
	return ok("nf_tables works; %d tables", len(tables))
}

// VXLAN makes a VXLAN interface in a network namespace that goes away with the
// thread that made it, so the machine's own network is not touched.
func VXLAN() Check {
	return Check{"vxlan", func(context.Context) Result {
		err := inNewNetns(func() error {
			return netlink.LinkAdd(&netlink.Vxlan{
				LinkAttrs: netlink.LinkAttrs{Name: "probe"}, VxlanId: 1, Port: 4789, Group: net.IPv4(192, 0, 2, 1),
			})
		})
		switch {
		case err == nil:
			return ok("a VXLAN interface can be made")
		case errors.Is(err, unix.EPERM):
			return fail("run outrigger as root", "network namespaces: %v", err)
		}
		return fail("modprobe vxlan, or use a kernel with CONFIG_VXLAN", "a VXLAN interface cannot be made: %v", err)
	}}
}

// Subnets checks that no other interface and no route uses the networks that
// will be made. own are the bridges that may be there already.
func Subnets(own []string, subnets []netip.Prefix) Check {
	return Check{"subnets", func(context.Context) Result {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		if err != nil {
			return warn("", "routes cannot be listed: %v", err)
		}
		for _, r := range routes {
			if clash, subnet, dev := clashes(r, own, subnets); clash {
				return fail("take that route away, or give the VMs other addresses (QEMU_SUBNET); --network none does without the pods' network",
					"%s is needed here and %s has the route %s", subnet, dev, r.Dst)
			}
		}
		return ok("%d networks are free", len(subnets))
	}}
}

func clashes(r netlink.Route, own []string, subnets []netip.Prefix) (bool, netip.Prefix, string) {
	if r.Dst == nil {
		return false, netip.Prefix{}, ""
	}
	addr, valid := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	if !valid || ones == 0 {
		return false, netip.Prefix{}, ""
	}
	route := netip.PrefixFrom(addr.Unmap(), ones)
	for _, s := range subnets {
		if !s.Overlaps(route) {
			continue
		}
		name := "an unknown interface"
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
			name = link.Attrs().Name
		}
		for _, o := range own {
			if name == o {
				return false, s, name
			}
		}
		return true, s, name
	}
	return false, netip.Prefix{}, ""
}
