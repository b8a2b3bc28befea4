// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ioDeadline is ten times and more what any exchange here takes when idle.
const ioDeadline = 60 * time.Second

// transferSize is what one TCP stream carries each way.
const transferSize = 100 << 20

// block is random, so that a piece in the wrong place shows.
var block = func() []byte {
	b := make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}()

// sendStream writes size bytes and reads as many back through conn, comparing
// each with what was due.
func sendStream(w io.Writer, size int) error {
	for sent := 0; sent < size; sent += len(block) {
		if _, err := w.Write(block); err != nil {
			return fmt.Errorf("after %d bytes: %w", sent, err)
		}
	}
	return nil
}

func receiveStream(r io.Reader, size int) error {
	buf := make([]byte, len(block))
	for got := 0; got < size; got += len(block) {
		if _, err := io.ReadFull(r, buf); err != nil {
			return fmt.Errorf("after %d bytes: %w", got, err)
		}
		if !bytes.Equal(buf, block) {
			return fmt.Errorf("bytes %d to %d differ", got, got+len(buf))
		}
	}
	return nil
}

func (n *testNS) listen(addr netip.Addr) net.Listener {
	n.t.Helper()
	var l net.Listener
	n.must(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		return err
	})
	n.t.Cleanup(func() { l.Close() })
	return l
}

func (n *testNS) dial(addr string) (conn net.Conn, err error) {
	err = n.do(func() (err error) {
		conn, err = net.DialTimeout("tcp", addr, ioDeadline)
		return err
	})
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(ioDeadline))
	}
	return conn, err
}

// exchange sends size bytes from client to server and then back.
func exchange(client, server *testNS, addr netip.Addr, size int) error {
	l := server.listen(addr)
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- serveExchange(l, size) }()
	conn, err := client.dial(l.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := sendStream(conn, size); err != nil {
		return fmt.Errorf("to %s: %w", addr, err)
	}
	if err := receiveStream(conn, size); err != nil {
		return fmt.Errorf("from %s: %w", addr, err)
	}
	return <-served
}

func serveExchange(l net.Listener, size int) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(ioDeadline)); err != nil {
		return err
	}
	return errors.Join(receiveStream(conn, size), sendStream(conn, size))
}

// Largest UDP payloads (RFC 768 with RFC 791 and RFC 8200 headers).
func largestDatagram(addr netip.Addr) int {
	if addr.Is4() {
		return 65535 - 20 - 8
	}
	return 65535 - 8
}

// Path MTU discovery spends packets, so a datagram is sent again soon, for as
// long as a busy machine may take to answer one.
const (
	udpPatience = 200 * time.Millisecond
	udpTries    = 50
)

// echoUDP sends a datagram of size bytes and wants it back unchanged.
func echoUDP(client, server *testNS, addr netip.Addr, size int) error {
	stop, port, err := startEcho(server, addr)
	if err != nil {
		return err
	}
	defer stop()
	var conn net.Conn
	err = client.do(func() (err error) {
		conn, err = net.Dial("udp", netip.AddrPortFrom(addr, port).String())
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	payload := block[:size]
	for range udpTries {
		if err = echoOnce(conn, payload); err == nil {
			return nil
		}
	}
	return fmt.Errorf("UDP of %d bytes to %s: %w", size, addr, err)
}

func echoOnce(conn net.Conn, payload []byte) error {
	if err := conn.SetDeadline(time.Now().Add(udpPatience)); err != nil {
		return err
	}
	if _, err := conn.Write(payload); err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	got, err := conn.Read(buf)
	if err == nil && !bytes.Equal(buf[:got], payload) {
		err = fmt.Errorf("%d bytes came back and differ", got)
	}
	return err
}

func startEcho(server *testNS, addr netip.Addr) (stop func(), port uint16, err error) {
	var conn net.PacketConn
	err = server.do(func() (err error) {
		conn, err = net.ListenPacket("udp", netip.AddrPortFrom(addr, 0).String())
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err == nil {
				_, err = conn.WriteTo(buf[:n], from)
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	return func() { conn.Close() }, conn.LocalAddr().(*net.UDPAddr).AddrPort().Port(), nil
}

// pathMTU sends packets that may not be fragmented, as large as the first
// interface allows, until the kernel knows of a smaller path MTU.
func (n *testNS) pathMTU(to netip.Addr, linkMTU int) int {
	n.t.Helper()
	mtu := 0
	n.must(func() (err error) {
		mtu, err = discoverMTU(to, linkMTU)
		return err
	})
	return mtu
}

func discoverMTU(to netip.Addr, linkMTU int) (int, error) {
	family, level, discover, option, header := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_MTU, 48
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: 9, Addr: to.As16()}
	if to.Is4() {
		family, level, discover, option, header = unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_MTU, 28
		sa = &unix.SockaddrInet4{Port: 9, Addr: to.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, level, discover, unix.IP_PMTUDISC_DO); err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, sa); err != nil {
		return 0, err
	}
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		err := unix.Send(fd, block[:linkMTU-header], 0)
		if errors.Is(err, syscall.EMSGSIZE) {
			return unix.GetsockoptInt(fd, level, option)
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, _ = unix.Poll(poll, 50) // wakes up early for an ICMP error
	}
	return unix.GetsockoptInt(fd, level, option)
}

func mustExchange(t *testing.T, what string, client, server *testNS, addr netip.Addr, size int) {
	t.Helper()
	if err := exchange(client, server, addr, size); err != nil {
		t.Errorf("%s: TCP: %v", what, err)
	}
}

func mustEcho(t *testing.T, what string, client, server *testNS, addr netip.Addr) {
	t.Helper()
	for _, size := range []int{1, 1200, 1472, largestDatagram(addr)} {
		if err := echoUDP(client, server, addr, size); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
