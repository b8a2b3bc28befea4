// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stream is a TCP or unix connection.
type stream interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// RawIO returns a connection like conn whose reads and writes the Go scheduler
// is not told about; the caller uses it in place of conn. A call of
// [net.Conn] announces a system call that may block, and the first one after a
// wait wakes the runtime's monitor thread, which then looks at the process
// every 20 µs: on a channel with one call at a time that is most of what a
// process does. These calls never block, so there is nothing to watch. A
// connection that is neither TCP nor unix is returned as it is.
func RawIO(conn net.Conn) net.Conn {
	s, ok := conn.(stream)
	if !ok {
		return conn
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return conn
	}
	c := &rawConn{stream: s, raw: raw}
	c.in.setup("read", unix.SYS_RECVFROM, unix.MSG_DONTWAIT)
	c.out.setup("write", unix.SYS_SENDTO, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return c
}

type rawConn struct {
	stream
	raw     syscall.RawConn
	in, out transfer
}

func (c *rawConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	n, err := c.move(&c.in, c.raw.Read, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (c *rawConn) Write(p []byte) (int, error) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	written := 0
	for written < len(p) {
		n, err := c.move(&c.out, c.raw.Write, p[written:])
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// move waits until a system call takes or gives something of p.
func (c *rawConn) move(t *transfer, wait func(func(uintptr) bool) error, p []byte) (int, error) {
	t.p = p
	err := wait(t.attempt)
	t.p = nil
	if err != nil {
		return 0, err
	}
	if t.errno != 0 {
		return 0, &net.OpError{Op: t.name, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(t.name, t.errno)}
	}
	return t.n, nil
}

// transfer is one direction of a connection, used by one goroutine at a time.
type transfer struct {
	mu          sync.Mutex
	name        string
	trap, flags uintptr
	// attempt is t.try, made once: each time it would be an allocation.
	attempt func(fd uintptr) bool
	p       []byte
	n       int
	errno   syscall.Errno
}

func (t *transfer) setup(name string, trap, flags uintptr) {
	t.name, t.trap, t.flags, t.attempt = name, trap, flags, t.try
}

// try makes the system call and reports whether it did not have to wait.
func (t *transfer) try(fd uintptr) bool {
	for {
		n, _, errno := unix.RawSyscall6(t.trap, fd, uintptr(unsafe.Pointer(&t.p[0])), uintptr(len(t.p)), t.flags, 0, 0)
		if errno != unix.EINTR {
			t.n, t.errno = int(n), errno
			return errno != unix.EAGAIN
		}
	}
}

// WholeFrames returns a listener whose connections write each frame with one system
// call. The ttrpc library writes a large frame in two, and its reader is woken twice.
func WholeFrames(listener net.Listener) net.Listener { return wholeListener{listener} }

type wholeListener struct{ net.Listener }

func (l wholeListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wholeConn{Conn: conn}, nil
}

// wholeConn holds back the beginning of a frame until its end is written. As
// with the library, only one goroutine writes.
type wholeConn struct {
	net.Conn
	buf []byte
}

func (c *wholeConn) Write(p []byte) (int, error) {
	c.buf = append(c.buf, p...)
	if !endsWithFrame(c.buf) {
		return len(p), nil
	}
	_, err := c.Conn.Write(c.buf)
	if c.buf = c.buf[:0]; cap(c.buf) > keepBuffer {
		c.buf = nil
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// endsWithFrame reports whether data, which begins with a frame, ends with one.
func endsWithFrame(data []byte) bool {
	for len(data) >= headerSize {
		size := headerSize + int(binary.BigEndian.Uint32(data))
		if size > len(data) {
			return false
		}
		data = data[size:]
	}
	return len(data) == 0
}
