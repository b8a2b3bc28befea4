// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// maxSessions is how many senders of datagrams one port knows; each has a socket.
	maxSessions = 1024
	// sessionTimeout ends a session without datagrams in either direction; Docker's proxy has the same.
	sessionTimeout = 90 * time.Second
	// dialTimeout bounds a connection to the pod.
	dialTimeout = 10 * time.Second
	maxDatagram = 64 << 10
)

// forwarder passes what comes to a port of this host on to a pod, from its making until Close.
type forwarder interface {
	io.Closer
	Addr() net.Addr
}

// tcpForwarder passes connections on, with the end of each direction.
type tcpForwarder struct {
	net.Listener
	pod    string
	ctx    context.Context
	cancel context.CancelFunc
}

// forwardTCP takes over a listener.
func forwardTCP(l net.Listener, pod string) forwarder {
	f := &tcpForwarder{Listener: l, pod: pod}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	go f.run()
	return f
}

func (f *tcpForwarder) Close() error {
	f.cancel()
	return f.Listener.Close()
}

// run goes on after a failure, such as too many open files.
func (f *tcpForwarder) run() {
	const first, longest = 5 * time.Millisecond, time.Second
	for pause := first; ; {
		c, err := f.Accept()
		switch {
		case err == nil:
			pause = first
			go f.pass(c)
		case f.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			poll.Sleep(f.ctx, pause)
			pause = min(2*pause, longest)
		}
	}
}

func (f *tcpForwarder) pass(c net.Conn) {
	defer c.Close()
	dialing, cancel := context.WithTimeout(f.ctx, dialTimeout)
	pod, err := new(net.Dialer).DialContext(dialing, "tcp", f.pod)
	cancel()
	if err != nil {
		return
	}
	defer pod.Close()
	defer context.AfterFunc(f.ctx, func() { c.Close(); pod.Close() })()
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{c: pod, pod: c} {
		both.Go(func() {
			if _, err := io.Copy(to, from); err != nil {
				from.Close() // who writes there is to know
			}
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				half.CloseWrite()
			}
		})
	}
	both.Wait()
}

// udpForwarder passes datagrams on, and replies to where they came from.
type udpForwarder struct {
	front *net.UDPConn
	pod   *net.UDPAddr

	mu       sync.Mutex
	sessions map[netip.AddrPort]*sender
	closed   bool
}

// sender is one sender of datagrams.
type sender struct {
	conn *net.UDPConn
	used time.Time
}

// forwardUDP takes over a socket.
func forwardUDP(front *net.UDPConn, pod *net.UDPAddr) forwarder {
	f := &udpForwarder{front: front, pod: pod, sessions: map[netip.AddrPort]*sender{}}
	go f.run()
	return f
}

func (f *udpForwarder) Addr() net.Addr { return f.front.LocalAddr() }

func (f *udpForwarder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, s := range f.sessions {
		s.conn.Close()
	}
	return f.front.Close()
}

func (f *udpForwarder) run() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := f.front.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one datagram
		}
		if conn := f.session(from); conn != nil {
			conn.Write(buf[:n]) // a datagram may be lost
		}
	}
}

// session returns the socket of a sender; nil loses its datagram.
func (f *udpForwarder) session(from netip.AddrPort) *net.UDPConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[from]
	if s == nil {
		conn, err := net.DialUDP("udp", nil, f.pod)
		if err != nil || f.closed {
			return nil
		}
		f.forgetOldest()
		s = &sender{conn: conn}
		f.sessions[from] = s
		go f.replies(from, s)
	}
	s.used = time.Now()
	s.conn.SetReadDeadline(s.used.Add(sessionTimeout))
	return s.conn
}

// forgetOldest makes room for one session more. The caller holds the lock.
func (f *udpForwarder) forgetOldest() {
	if len(f.sessions) < maxSessions {
		return
	}
	var oldest netip.AddrPort
	for from, s := range f.sessions {
		if !oldest.IsValid() || s.used.Before(f.sessions[oldest].used) {
			oldest = from
		}
	}
	f.sessions[oldest].conn.Close()
	delete(f.sessions, oldest)
}

func (f *udpForwarder) replies(to netip.AddrPort, s *sender) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.conn.Close()
		if f.sessions[to] == s {
			delete(f.sessions, to)
		}
	}()
	buf := make([]byte, maxDatagram)
	for {
		n, err := s.conn.Read(buf)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			continue // nobody in the pod listens yet
		}
		s.conn.SetReadDeadline(time.Now().Add(sessionTimeout))
		f.front.WriteToUDPAddrPort(buf[:n], to)
	}
}
