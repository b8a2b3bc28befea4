// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"encoding/binary"
	"net"
)

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
