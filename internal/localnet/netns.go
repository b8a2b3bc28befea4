// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// podInterface is the name of the interface in a pod's namespace.
const podInterface = "eth0"

// ensureNetns makes namespace and veth pair. A pair that is there is complete
// except for its configuration, since both ends are made by one request.
func (n *Network) ensureNetns(st *state, bridge netlink.Link, l *lease) error {
	path := filepath.Join(netnsDir, l.Netns)
	if err := CreateNetns(path); err != nil {
		return err
	}
	handle, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", path, err)
	}
	defer handle.Close()
	if err := ensureMember(st, bridge, l.Interface, func() error { return createVeth(st, l, handle) }); err != nil {
		return err
	}
	return configurePod(handle, l, n.Gateways())
}

func createVeth(st *state, l *lease, pod netns.NsHandle) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = l.Interface, st.MTU
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerNamespace = podInterface, uint32(st.MTU), netlink.NsFd(pod)
	veth.PeerHardwareAddr, _ = net.ParseMAC(l.MAC)
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("create veth %s: %w", l.Interface, err)
	}
	return nil
}

func configurePod(pod netns.NsHandle, l *lease, gateways []netip.Addr) error {
	handle, err := netlink.NewHandleAt(pod, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in the pod's namespace: %w", err)
	}
	defer handle.Close()
	eth0, err := handle.LinkByName(podInterface)
	if err != nil {
		return fmt.Errorf("find the pod's %s: %w", podInterface, err)
	}
	for _, addr := range l.Addrs {
		entry := &netlink.Addr{IPNet: ipNet(addr), Flags: unix.IFA_F_NODAD}
		if err := handle.AddrReplace(eth0, entry); err != nil {
			return fmt.Errorf("add address %s to the pod: %w", addr, err)
		}
	}
	for _, name := range []string{"lo", podInterface} {
		link, err := handle.LinkByName(name)
		if err == nil {
			err = handle.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("set the pod's %s up: %w", name, err)
		}
	}
	for _, gateway := range gateways {
		route := &netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gateway.AsSlice(), Dst: everywhere(gateway)}
		if err := handle.RouteReplace(route); err != nil {
			return fmt.Errorf("add the pod's default route by %s: %w", gateway, err)
		}
	}
	return nil
}

// CreateNetns makes a named namespace as ip-netns(8) does: a file with the
// namespace mounted over it, which keeps it alive without a process. One that is there stays.
func CreateNetns(path string) error {
	if isNetns(path) {
		return nil
	}
	if err := makeMountPoint(path); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	err := InNewNetns(func() error {
		own := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		return unix.Mount(own, path, "none", unix.MS_BIND, "")
	})
	if err != nil {
		return errors.Join(fmt.Errorf("create namespace %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// InNewNetns runs do in a new network namespace, which ends with it unless do makes it stay.
func InNewNetns(do func() error) error {
	return onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, do)
}

// InNetns runs do in a network namespace.
func InNetns(ns netns.NsHandle, do func() error) error {
	return onThread(func() error { return netns.Set(ns) }, do)
}

func onThread(enter, do func() error) error {
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with this goroutine, and with it its hold on
		// the namespace.
		runtime.LockOSThread()
		if err := enter(); err != nil {
			done <- fmt.Errorf("enter the namespace: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}

// makeMountPoint makes an empty file, also while another process removes the
// folder, which it thinks is empty.
func makeMountPoint(path string) error {
	for tries := 0; ; tries++ {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
		if err == nil {
			return file.Close()
		}
		if !os.IsNotExist(err) || tries > 10 {
			return err
		}
	}
}

func isNetns(path string) bool {
	var info unix.Statfs_t
	return unix.Statfs(path, &info) == nil && info.Type == unix.NSFS_MAGIC
}

func deleteNetns(path string) error {
	for isNetns(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount namespace %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove namespace: %w", err)
	}
	os.Remove(filepath.Dir(path)) // unless there are others
	return nil
}

// everywhere is the destination of a default route in the gateway's family.
func everywhere(gateway netip.Addr) *net.IPNet {
	if gateway.Is4() {
		return ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	}
	return ipNet(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}
