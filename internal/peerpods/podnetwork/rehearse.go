// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet"
)

// rehearsed is a pod's network with addresses for documentation (RFC 5737).
var rehearsed = Config{
	PodIP: netip.MustParsePrefix("198.51.100.2/24"), PodHwAddr: "02:00:00:00:00:02", Interface: "eth0",
	WorkerNodeIP: netip.MustParsePrefix("192.0.2.1/24"), TunnelType: TunnelVXLAN, VXLANID: 1, MTU: 1450, SourceCheck: true,
	Routes:    []Route{{Dst: "0.0.0.0/0", GW: "198.51.100.1", Dev: "eth0"}},
	Neighbors: []Neighbor{{IP: "198.51.100.1", HwAddr: "02:00:00:00:00:01", Dev: "eth0", State: "permanent"}},
}

// RehearseGuest does SetupGuest's work once, in network namespaces of its own that are gone
// when it returns. At podNetns, a path that nothing has, it keeps one of them meanwhile.
func RehearseGuest(ctx context.Context, podNetns string) error {
	return localnet.InNewNetns(func() error {
		vm, err := currentNamespace()
		if err != nil {
			return err
		}
		defer vm.Close()
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "vm"}, PeerName: "node"}
		addr := &netlink.Addr{IPNet: toIPNet(netip.MustParsePrefix("192.0.2.2/24"))}
		for _, do := range []func() error{
			func() error { return vm.LinkAdd(link) }, func() error { return vm.AddrAdd(link, addr) }, func() error { return vm.LinkSetUp(link) },
		} {
			if err := do(); err != nil {
				return err
			}
		}
		err = setupGuest(ctx, podNetns, "", &rehearsed)
		return errors.Join(err, unix.Unmount(podNetns, unix.MNT_DETACH), os.Remove(podNetns))
	})
}
