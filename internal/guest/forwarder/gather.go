// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"crypto/tls"
	"net"
	"sync"
)

// gatherLimit bounds what a gather holds back, in bytes, and what it keeps
// allocated.
const gatherLimit = 64 << 10

// gather is the connection under a TLS connection. Between hold and release it
// collects records, so that all records of a large write go out with one system
// call.
type gather struct {
	net.Conn
	mu   sync.Mutex
	held bool
	buf  []byte
}

func (g *gather) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = true
}

// release writes what was collected.
func (g *gather) release() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = false
	return g.flush()
}

func (g *gather) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		return g.Conn.Write(p)
	}
	g.buf = append(g.buf, p...)
	if len(g.buf) < gatherLimit {
		return len(p), nil
	}
	if err := g.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (g *gather) flush() error {
	if len(g.buf) == 0 {
		return nil
	}
	_, err := g.Conn.Write(g.buf)
	if g.buf = g.buf[:0]; cap(g.buf) > gatherLimit {
		g.buf = nil
	}
	return err
}

// secureConn is a TLS connection over a gather. One goroutine writes at a
// time.
type secureConn struct {
	*tls.Conn
	records *gather
}

func (c *secureConn) Write(p []byte) (int, error) {
	c.records.hold()
	n, err := c.Conn.Write(p)
	if ferr := c.records.release(); err == nil && ferr != nil {
		return 0, ferr
	}
	return n, err
}

// Close does not wait for a write that its peer does not read.
func (c *secureConn) Close() error {
	if c.records.mu.TryLock() {
		c.records.mu.Unlock()
	} else {
		c.records.Close()
	}
	return c.Conn.Close()
}
