// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"k8s.io/utils/lru"

	"github.com/outrigger/outrigger/internal/loadbalancer"
)

const (
	// maxSenders is how many senders of datagrams one port knows.
	maxSenders = 1024
	// senderTimeout forgets one without datagrams in either direction; Docker's proxy has the same.
	senderTimeout = 90 * time.Second
	maxDatagram   = 64 << 10
)

// forwarder passes what comes to a port of this host on to a pod until Close.
type forwarder interface {
	Addr() net.Addr
	Close() error
}

// tcpForwarder is the listener of a load balancer with one backend.
type tcpForwarder struct {
	net.Listener
	stop context.CancelFunc
}

// forwardTCP takes over a listener.
func forwardTCP(l net.Listener, pod *net.TCPAddr) forwarder {
	ctx, stop := context.WithCancel(context.Background())
	p := &loadbalancer.Proxy{Log: slog.New(slog.DiscardHandler), CheckEvery: -1}
	p.Use(ctx, []loadbalancer.Backend{{Host: pod.IP.String(), Port: pod.Port}})
	go p.Serve(ctx, l)
	return &tcpForwarder{l, stop}
}

// Close also ends connections.
func (f *tcpForwarder) Close() error {
	f.stop()
	return f.Listener.Close()
}

// udpForwarder passes datagrams on, and replies to where they came from.
type udpForwarder struct {
	*net.UDPConn
	pod *net.UDPAddr
	// senders have a socket to the pod each; the one that was silent longest gives its place.
	senders *lru.Cache
}

// forwardUDP takes over a socket.
func forwardUDP(front *net.UDPConn, pod *net.UDPAddr) *udpForwarder {
	closeIt := func(_ lru.Key, conn any) { conn.(*net.UDPConn).Close() }
	f := &udpForwarder{front, pod, lru.NewWithEvictionFunc(maxSenders, closeIt)}
	go f.run()
	return f
}

func (f *udpForwarder) Addr() net.Addr { return f.LocalAddr() }

func (f *udpForwarder) Close() error {
	defer f.senders.Clear()
	return f.UDPConn.Close()
}

func (f *udpForwarder) run() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := f.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one datagram
		}
		if conn, err := f.socket(from); err == nil { // a datagram may be lost
			conn.SetReadDeadline(time.Now().Add(senderTimeout))
			conn.Write(buf[:n])
		}
	}
}

// socket returns that of a sender.
func (f *udpForwarder) socket(from netip.AddrPort) (*net.UDPConn, error) {
	if conn, known := f.senders.Get(from); known {
		return conn.(*net.UDPConn), nil
	}
	conn, err := net.DialUDP("udp", nil, f.pod)
	if err == nil {
		f.senders.Add(from, conn)
		go f.replies(from, conn)
	}
	return conn, err
}

func (f *udpForwarder) replies(to netip.AddrPort, conn *net.UDPConn) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := conn.Read(buf)
		switch {
		case err == nil:
			conn.SetReadDeadline(time.Now().Add(senderTimeout))
			f.WriteToUDPAddrPort(buf[:n], to)
		case errors.Is(err, os.ErrDeadlineExceeded):
			f.senders.Remove(to)
			return
		case errors.Is(err, net.ErrClosed):
			return
		} // else nobody in the pod listens yet
	}
}
