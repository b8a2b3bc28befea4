// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
)

// link is a connection that says when it has broken, and lets nothing through
// that is not a packet of the protocol: package go-libvirt allocates whatever a
// length says.
type link struct {
	net.Conn
	frames framing
	once   sync.Once
	broken chan struct{}
}

func newLink(conn net.Conn) *link { return &link{Conn: conn, broken: make(chan struct{})} }

func (l *link) snap() { l.once.Do(func() { close(l.broken) }) }

// Read never returns an error that passes: package go-libvirt would take up
// reading in the middle of a packet.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if wrong := l.frames.check(p[:n]); wrong != nil {
		n, err = 0, wrong
	}
	if err != nil {
		l.Conn.Close()
		l.snap()
	}
	return n, err
}

func (l *link) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if err != nil {
		// Half a packet may be out: nothing that follows would be understood.
		l.Conn.Close()
		l.snap()
	}
	return n, err
}

func (l *link) Close() error {
	l.snap()
	return l.Conn.Close()
}

func (l *link) isBroken() bool {
	select {
	case <-l.broken:
		return true
	default:
		return false
	}
}

// Sizes of packets with their length field (libvirt's virnetprotocol.x).
const (
	packetLeast = 28
	packetMost  = 32<<20 + 4
)

// framing follows a stream of packets, each of which begins with its length.
type framing struct {
	head [4]byte
	have int
	left int
}

func (f *framing) check(p []byte) error {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, len(p))
			f.left, p = f.left-n, p[n:]
			continue
		}
		f.head[f.have], p = p[0], p[1:]
		if f.have++; f.have < len(f.head) {
			continue
		}
		length := binary.BigEndian.Uint32(f.head[:])
		if length < packetLeast || length > packetMost {
			return fmt.Errorf("%w: a packet of %d bytes: that is not a libvirt daemon", errBroken, length)
		}
		f.have, f.left = 0, int(length)-len(f.head)
	}
	return nil
}
