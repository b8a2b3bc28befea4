// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet"
)

// TunnelTLS is the type of an encrypted tunnel. The kernel knows none of it: each end
// has a pair of interfaces, and the frames that reach the pair's other end are read
// from a packet socket and carried by a connection, see package frametunnel.
const TunnelTLS = "tls"

const (
	// frameLinkName is that end of the pair in a pod's namespace on the node to which
	// the redirects go, and frameEndName the one with the socket.
	frameLinkName = "tls1"
	frameEndName  = "tls1-end"
	// frameNamespace ends the name of the namespace in the VM that holds nothing but
	// the socket's end: the pod must not see it, and it reaches nothing of the VM.
	frameNamespace = "-tunnel"
	// frameQueue bounds, in bytes of the kernel's memory, the frames that wait for a
	// connection that is slow or gone; more are dropped, as by any full queue.
	frameQueue = 4 << 20
)

func (c *Config) encrypted() bool { return c.TunnelType == TunnelTLS }

// OpenNodeFrames returns the node's end of an encrypted tunnel that SetupNode made: a
// packet socket. Each read is one frame of the pod's interface, each write one to it,
// with a struct virtio_net_hdr before it (packet(7), PACKET_VNET_HDR). The caller needs
// CAP_NET_RAW; who has the socket needs nothing. Errors: [ErrNoNetns].
func OpenNodeFrames(netns string) (*os.File, error) { return openFrames(netns) }

// OpenGuestFrames is OpenNodeFrames for the VM's end, which SetupGuest made.
func OpenGuestFrames(podNetns string) (*os.File, error) {
	return openFrames(podNetns + frameNamespace)
}

func openFrames(path string) (*os.File, error) {
	ns, err := openNamespace(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	link, err := ns.LinkByName(frameEndName)
	if err != nil {
		return nil, fmt.Errorf("the tunnel's %s: %w", frameEndName, err)
	}
	var file *os.File
	err = localnet.InNetns(ns.ns, func() (err error) {
		file, err = packetSocket(link.Attrs().Index)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("packet socket at %s: %w", frameEndName, err)
	}
	return file, nil
}

// packetSocket begins without a protocol, so that it sees nothing of other interfaces
// before it is bound.
func packetSocket(link int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, frameQueue},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, frameQueue},
	} {
		if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			unix.Close(fd)
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff}) // in the network's order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "packet"), nil
}

// ensureFramePair makes the pair in the namespace end with its first interface in dest.
// One that is there stays.
func ensureFramePair(end, dest *namespace, name string, mtu int, mac net.HardwareAddr) (link netlink.Link, created bool, err error) {
	if link, err = dest.link(name); err != nil {
		return nil, false, err
	}
	if link != nil && link.Type() != "veth" {
		return nil, false, fmt.Errorf("interface %s exists in the pod's namespace and is of type %s", name, link.Type())
	}
	if link == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = frameEndName, mtu
		pair := netlink.NewVeth(attrs)
		pair.PeerName, pair.PeerMTU, pair.PeerHardwareAddr, pair.PeerNamespace = name, uint32(mtu), mac, netlink.NsFd(dest.ns)
		if err := end.LinkAdd(pair); err != nil {
			return nil, false, fmt.Errorf("create %s and %s: %w", frameEndName, name, err)
		}
		created = true
		if link, err = dest.LinkByName(name); err != nil {
			return nil, true, fmt.Errorf("%s is missing after it was created: %w", name, err)
		}
	}
	return link, created, end.startFrameEnd()
}

// startFrameEnd sets the socket's end up. It answers nothing itself: it has no address,
// not even one of IPv6, and no ARP.
func (n *namespace) startFrameEnd() error {
	link, err := n.LinkByName(frameEndName)
	if err != nil {
		return fmt.Errorf("the tunnel's %s: %w", frameEndName, err)
	}
	_ = n.LinkSetIP6AddrGenMode(link, addrGenModeNone) // kernels without IPv6 have nothing to refuse
	if err := n.LinkSetARPOff(link); err != nil {
		return fmt.Errorf("turn off ARP of %s: %w", frameEndName, err)
	}
	if err := n.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", frameEndName, err)
	}
	return nil
}

// frameSteps are the node's steps for an encrypted tunnel.
func (e *nodeEnd) frameSteps() []step {
	return []step{
		{"create the tunnel's interfaces", e.ensureFrameLink},
		{"redirect pod to tunnel", func() (func() error, error) { return e.ensureRedirect(e.podLink, e.tunnelLink) }},
		{"redirect tunnel to pod", func() (func() error, error) { return e.ensureRedirect(e.tunnelLink, e.podLink) }},
		{"start tunnel", e.startTunnel},
	}
}

func (e *nodeEnd) ensureFrameLink() (func() error, error) {
	mtu, err := e.cfg.tunnelMTU(0)
	if err != nil {
		return nil, err
	}
	link, created, err := ensureFramePair(e.pod, e.pod, frameLinkName, mtu, nil)
	e.tunnelLink = link
	if !created {
		return nil, err
	}
	return func() error { return e.pod.deleteLink(frameLinkName, "veth") }, err
}

// ensureFrameInterface makes the pod's interface in the VM, with its other end in a
// namespace of its own.
func (e *guestEnd) ensureFrameInterface(podNetns string) error {
	mtu, err := e.cfg.tunnelMTU(0)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(e.cfg.PodHwAddr)
	if err != nil {
		return err
	}
	end, err := ensureNamespace(podNetns + frameNamespace)
	if err != nil {
		return err
	}
	defer end.Close()
	link, _, err := ensureFramePair(end, e.pod, e.cfg.Interface, mtu, mac)
	if err != nil {
		return err
	}
	return e.repairInterface(link, mtu, mac)
}
