// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// tired is a listener that fails at first.
type tired struct {
	net.Listener
	failures atomic.Int32
}

func (l *tired) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

// TestForwardingGoesOnAfterAFailedAccept: and gives a connection both of its ends.
func TestForwardingGoesOnAfterAFailedAccept(t *testing.T) {
	pod, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	go func() {
		for {
			c, err := pod.Accept()
			if err != nil {
				return
			}
			data, _ := io.ReadAll(c)
			fmt.Fprintf(c, "got %s", data)
			c.Close()
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := &tired{Listener: l}
	front.failures.Store(2)
	f := forwardTCP(front, pod.Addr().(*net.TCPAddr))
	c, err := net.Dial("tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	if data, err := io.ReadAll(c); string(data) != "got hello" {
		t.Errorf("%q, %v", data, err)
	}
	f.Close()
	if _, err := net.Dial("tcp", f.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after its end: %v", err)
	}
}

// TestForwardingOfManySenders: the one that was silent longest gives its place.
func TestForwardingOfManySenders(t *testing.T) {
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	f := forwardUDP(front, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	defer f.Close()
	socket := func(n int) *net.UDPConn {
		t.Helper()
		conn, err := f.socket(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(n)))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, second := socket(1), socket(2)
	for n := 3; n <= maxSenders; n++ {
		socket(n)
	}
	if socket(1) != first { // 2 is the oldest now
		t.Error("a sender has another socket")
	}
	socket(maxSenders + 1)
	if _, err := second.Write(nil); !errors.Is(err, net.ErrClosed) || socket(1) != first || f.senders.Len() != maxSenders {
		t.Errorf("%d senders; of the oldest: %v", f.senders.Len(), err)
	}
}
