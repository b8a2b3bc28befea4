// SPDX-License-Identifier: Apache-2.0

// Package portforward makes kubectl port-forward reach a pod in a VM.
//
// containerd enters the pod's network namespace on the node and connects to
// localhost there. With a pod in a VM nobody listens at that address: the
// namespace is only where the tunnel to the VM begins. So all TCP connections to
// localhost in the namespace are redirected to a listener of ours, which
// connects to the pod's address from the node, on the way that the kubelet's
// probes take.
package portforward

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet"
)

// dialTimeout bounds the way into the VM. kubectl waits without a limit.
const dialTimeout = 30 * time.Second

// Forwarder is that of one pod.
type Forwarder struct {
	listener net.Listener
	pod      netip.Addr

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	done   sync.WaitGroup
}

// Open serves localhost of the network namespace at path until Close.
func Open(path string) (*Forwarder, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer ns.Close()
	f := &Forwarder{conns: map[net.Conn]bool{}}
	if f.pod, err = address(ns); err != nil {
		return nil, err
	}
	if f.listener, err = listen(ns); err != nil {
		return nil, fmt.Errorf("listen in network namespace %s: %w", path, err)
	}
	if err := redirect(ns, f.listener.Addr().(*net.TCPAddr).Port); err != nil {
		f.listener.Close()
		return nil, fmt.Errorf("redirect localhost in network namespace %s (the kernel needs nf_tables with nat and redir): %w", path, err)
	}
	f.done.Go(f.accept)
	return f, nil
}

// address returns the pod's address, on any interface but lo.
func address(ns netns.NsHandle) (netip.Addr, error) {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return netip.Addr{}, err
	}
	defer h.Close()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := h.AddrList(nil, family)
		if err != nil {
			return netip.Addr{}, err
		}
		for _, a := range all {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap().IsGlobalUnicast() {
				return ip.Unmap(), nil
			}
		}
	}
	return netip.Addr{}, errors.New("the pod has no address")
}

// listen opens a socket in the namespace. Where it is used from is the same.
func listen(ns netns.NsHandle) (l net.Listener, err error) {
	err = localnet.InNetns(ns, func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	return l, err
}

func (f *Forwarder) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return // closed: a listener on loopback has no other errors that last
		}
		if f.add(conn) {
			f.done.Go(func() { f.serve(conn.(*net.TCPConn)) })
		}
	}
}

// add keeps a connection, so that Close ends it; after Close it ends at once.
func (f *Forwarder) add(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		c.Close()
		return false
	}
	f.conns[c] = true
	return true
}

func (f *Forwarder) drop(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
	c.Close()
}

func (f *Forwarder) serve(client *net.TCPConn) {
	defer f.drop(client)
	port, err := originalPort(client)
	if err != nil {
		return
	}
	pod, err := net.DialTimeout("tcp", net.JoinHostPort(f.pod.String(), strconv.Itoa(port)), dialTimeout)
	if err != nil {
		client.SetLinger(0) // a reset, as from a port where nobody listens
		return
	}
	if !f.add(pod) {
		return
	}
	defer f.drop(pod)
	both(client, pod.(*net.TCPConn))
}

// both copies until each side has ended its half.
func both(a, b *net.TCPConn) {
	var wg sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		wg.Go(func() {
			if _, err := io.Copy(way[0], way[1]); err != nil {
				// Nothing can be sent to way[0], so there is no need to read from way[1].
				way[1].Close()
			}
			way[0].CloseWrite()
		})
	}
	wg.Wait()
}

// Close ends all connections.
func (f *Forwarder) Close() {
	if f == nil {
		return
	}
	f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.done.Wait()
}

// table goes with the namespace. One that is there is of a shim that has died.
const table = "outrigger_portforward"

// redirect sends TCP connections to 127.0.0.0/8, whatever their port, to ours.
func redirect(ns netns.NsHandle, port int) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return err
	}
	t := conn.AddTable(&nftables.Table{Name: table, Family: nftables.TableFamilyIPv4})
	conn.FlushTable(t)
	accept := nftables.ChainPolicyAccept
	chain := conn.AddChain(&nftables.Chain{
		Name: "output", Table: t, Type: nftables.ChainTypeNAT, Policy: &accept,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		// The first byte of the destination's address.
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{127}},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(port))},
		&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1},
	}})
	return conn.Flush()
}

// originalPort returns the port of a connection before it was redirected.
func originalPort(c *net.TCPConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var port int
	var failed error
	err = raw.Control(func(fd uintptr) {
		// A sockaddr_in fits into this structure, whose size is the least one
		// that the kernel takes.
		original, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			failed = os.NewSyscallError("getsockopt SO_ORIGINAL_DST", err)
			return
		}
		port = int(original.Multiaddr[2])<<8 | int(original.Multiaddr[3])
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the port: %w", err)
	}
	return port, nil
}
