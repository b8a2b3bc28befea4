// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var errNoTun = errors.New("/dev/net/tun does not exist")

func (n *Network) ensureTap(st *state, bridge netlink.Link, l *lease) error {
	if err := ensureMember(st, bridge, l.Interface, func() error { return createTap(l.Interface) }); err != nil {
		return err
	}
	// A VM is spoken to while it boots, and a failed ARP request is repeated only once a second.
	for _, neighbour := range neighbours(bridge, l) {
		if err := netlink.NeighSet(neighbour); err != nil {
			return fmt.Errorf("set neighbour %s: %w", neighbour.IP, err)
		}
	}
	return nil
}

// createTap makes a tap that stays.
func createTap(name string) error {
	tap, err := openTap(name)
	if err != nil {
		return err
	}
	defer tap.Close()
	if err := unix.IoctlSetInt(int(tap.Fd()), unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("make tap %s persistent: %w", name, err)
	}
	return nil
}

// LooseTap returns a tap that is on no bridge and goes when it is closed
// everywhere.
func LooseTap() (*os.File, error) { return openTap("orloose%d") }

// openTap makes a tap if there is none. With IFF_VNET_HDR, checksums and segmentation are
// left to whoever is last. The kernel puts a number in place of %d.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return nil, errNoTun
	}
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	tap := os.NewFile(uintptr(fd), "/dev/net/tun")
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tap name %q: %w", name, err), tap.Close())
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(fmt.Errorf("create tap %s: %w", name, err), tap.Close())
	}
	return tap, nil
}

// ensureMember makes an interface, which create makes if it is not there, an active port
// of the bridge. The port itself takes no part in IPv6.
func ensureMember(st *state, bridge netlink.Link, name string, create func() error) error {
	link, err := findLink(name)
	if err == nil && link == nil {
		if err = create(); err == nil {
			link, err = netlink.LinkByName(name)
		}
	}
	if err != nil {
		return err
	}
	if err := setKernel(map[string]string{"/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6": "1"}); err != nil {
		return err
	}
	if err := setMTU(link, st.MTU); err != nil {
		return err
	}
	if link.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("add %s to bridge: %w", name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// neighbours tell this machine the MAC of a VM's addresses.
func neighbours(bridge netlink.Link, l *lease) []*netlink.Neigh {
	mac, _ := net.ParseMAC(l.MAC)
	var all []*netlink.Neigh
	for _, addr := range l.Addrs {
		all = append(all, &netlink.Neigh{
			LinkIndex: bridge.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: addr.Addr().AsSlice(), HardwareAddr: mac,
		})
	}
	return all
}

func (n *Network) removePort(l *lease) error {
	if err := deleteLink(l.Interface); err != nil {
		return err
	}
	if l.Netns != "" {
		if err := deleteNetns(filepath.Join(netnsDir, l.Netns)); err != nil {
			return err
		}
	}
	bridge, err := n.ownBridge()
	if bridge == nil || err != nil {
		return err
	}
	for _, neighbour := range neighbours(bridge, l) {
		if err := netlink.NeighDel(neighbour); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove neighbour %s: %w", neighbour.IP, err)
		}
	}
	return nil
}

// sweep removes what has no lease: left by a process that was killed, or by a
// state folder that somebody removed.
func (n *Network) sweep(st *state, bridge netlink.Link) {
	keep, keepNetns := map[string]bool{}, map[string]bool{}
	for _, l := range st.Leases {
		keep[l.Interface], keepNetns[l.Netns] = true, true
	}
	if err := n.removeMembers(bridge, keep); err != nil {
		n.log().Warn("could not remove leftover interfaces", "error", err)
	}
	left, _ := filepath.Glob(filepath.Join(netnsDir, n.cfg.Bridge+"-????????????"))
	for _, path := range left {
		if keepNetns[filepath.Base(path)] {
			continue
		}
		if err := deleteNetns(path); err != nil {
			n.log().Warn("could not remove a leftover namespace", "error", err)
		}
	}
}

// removeMembers deletes our interfaces on the bridge except those to keep.
func (n *Network) removeMembers(bridge netlink.Link, keep map[string]bool) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.MasterIndex == bridge.Attrs().Index && !keep[attrs.Name] && ourName(attrs.Name) {
			errs = append(errs, deleteLink(attrs.Name))
		}
	}
	return errors.Join(errs...)
}

func ourName(name string) bool {
	for _, prefix := range interfacePrefix {
		if strings.HasPrefix(name, prefix) && len(name) == len(prefix)+11 {
			return true
		}
	}
	return false
}
