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

	"github.com/outrigger/outrigger/internal/localnet"
)

func (m Machine) nft(context.Context) Result {
	const fix = "use a kernel with nf_tables and NAT (CONFIG_NF_TABLES, CONFIG_NFT_NAT), as root"
	conn, err := nftables.New()
	if err != nil {
		return Fail(fix, "%v", err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		return Fail(fix, "tables cannot be listed: %v", err)
	}
	return Good("nf_tables works; %d tables", len(tables))
}

// VXLAN makes a VXLAN interface in a network namespace that goes away with the
// thread that made it, so the machine's own network is not touched.
func VXLAN() Check {
	return Check{"vxlan", func(context.Context) Result {
		err := localnet.InNewNetns(func() error {
			return netlink.LinkAdd(&netlink.Vxlan{
				LinkAttrs: netlink.LinkAttrs{Name: "probe"}, VxlanId: 1, Port: 4789, Group: net.IPv4(192, 0, 2, 1),
			})
		})
		switch {
		case err == nil:
			return Good("a VXLAN interface can be made")
		case errors.Is(err, unix.EPERM):
			return Fail("run outrigger as root", "network namespaces: %v", err)
		}
		return Fail("modprobe vxlan, or use a kernel with CONFIG_VXLAN", "a VXLAN interface cannot be made: %v", err)
	}}
}

// Subnets checks that no other interface and no route uses the networks that
// will be made. own are the bridges that may be there already.
func Subnets(own []string, subnets []netip.Prefix) Check {
	return Check{"subnets", func(context.Context) Result {
		err := localnet.CheckFree(subnets, own...)
		switch {
		case errors.Is(err, localnet.ErrClash):
			return Fail("take that route away, or give the VMs other addresses (QEMU_SUBNET); --network none does without the pods' network", "%v", err)
		case err != nil:
			return Warn("run outrigger as root", "the routes cannot be read: %v", err)
		}
		return Good("%d networks are free", len(subnets))
	}}
}
