// SPDX-License-Identifier: Apache-2.0

// Package frametunnel carries a pod's Ethernet frames between its node and its VM in a
// TLS connection of the agent channel. On both ends a process has a packet socket of
// package podnetwork, which lets the kernel's segmentation work for TCP: what crosses
// the connection are frames of up to 64 KiB, and nothing of it is sized for the network
// between the two machines.
//
// On the wire each frame has its length before it, 4 bytes in the network's order, and
// then begins with the struct virtio_net_hdr that packet sockets have (packet(7)).
package frametunnel

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// Protocol is what the two ends agree on in the TLS handshake (ALPN, RFC 7301). A VM
// whose image knows no such tunnel agrees on nothing.
const Protocol = "outrigger-frames/1"

const (
	// vnetHeader is the size of struct virtio_net_hdr, and ethernet that of an Ethernet
	// header (IEEE 802.3), in bytes.
	vnetHeader, ethernet = 10, 14
	// maxFrame bounds a frame: the two headers, a VLAN tag and the largest IP packet.
	maxFrame   = vnetHeader + ethernet + 4 + 65535
	lengthSize = 4
	// batch is how many bytes of frames go into one write, if so many wait.
	batch = 256 << 10
	// fullRecord is what one TLS record holds (RFC 8446, section 5.1).
	fullRecord = 16 << 10
	// maxRecords is how many records one key may encrypt: RFC 8446, section 5.5, has
	// 2^24.5 for AES-GCM. Go's library counts none, so there is a new connection.
	maxRecords = 1 << 24
)

// ErrUsedUp means that a connection has carried as much as one key should.
var ErrUsedUp = errors.New("the connection has carried as much as its key may encrypt")

// Carry moves frames between a packet socket and a connection until ctx ends, and then
// returns nil, or until one of them fails. It closes conn, and leaves frames open for the next
// connection. One Carry at a time may use frames.
func Carry(ctx context.Context, frames *os.File, conn *podtls.Conn) error {
	conn.ReadAhead(batch)
	return carry(ctx, frames, conn, maxRecords)
}

func carry(ctx context.Context, frames *os.File, conn net.Conn, records int) error {
	if err := frames.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var ends sync.WaitGroup
	ends.Go(func() {
		<-ctx.Done()
		conn.Close()
		frames.SetReadDeadline(time.Unix(1, 0)) // long past: send returns
	})
	ends.Go(func() { cancel(send(frames, conn, records)) })
	ends.Go(func() { cancel(receive(frames, conn)) })
	ends.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// send reads as many frames as there are, and then writes them together.
func send(frames *os.File, conn net.Conn, records int) error {
	raw, err := frames.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, 0, batch)
	for records > 0 {
		var failed error
		err := raw.Read(func(fd uintptr) (done bool) {
			for cap(buf)-len(buf) >= lengthSize+maxFrame {
				n, err := unix.Read(int(fd), buf[len(buf)+lengthSize:len(buf)+lengthSize+maxFrame])
				switch {
				case err == nil:
					length := binary.BigEndian.AppendUint32(buf, uint32(n))
					buf = length[:len(length)+n]
				case err == unix.EAGAIN:
					return len(buf) > 0
				case err != unix.EINTR && err != unix.ENETDOWN: // the interface was set down; it may come up again
					failed = os.NewSyscallError("read", err)
					return true
				}
			}
			return true
		})
		if err := errors.Join(err, failed); err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		if _, err := conn.Write(buf); err != nil {
			return err
		}
		records -= (len(buf) + fullRecord - 1) / fullRecord
		buf = buf[:0]
	}
	return ErrUsedUp
}

// receive writes frames of the other end. What the kernel refuses, such as a frame that
// is larger than the interface's MTU, is dropped, as a network does.
func receive(frames *os.File, conn net.Conn) error {
	in := bufio.NewReaderSize(conn, batch)
	for {
		head, err := in.Peek(lengthSize)
		if err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(head))
		if n < vnetHeader+ethernet || n > maxFrame {
			return fmt.Errorf("the other end sent a frame of %d bytes; want %d to %d", n, vnetHeader+ethernet, maxFrame)
		}
		frame, err := in.Peek(lengthSize + n)
		if err != nil {
			return err
		}
		if _, err := frames.Write(frame[lengthSize:]); errors.Is(err, os.ErrClosed) {
			return err
		}
		if _, err := in.Discard(lengthSize + n); err != nil {
			return err
		}
	}
}
