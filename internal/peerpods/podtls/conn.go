// SPDX-License-Identifier: Apache-2.0

package podtls

import (
	"bufio"
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
	ahead *bufio.Reader // nil: nothing is read in advance

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

// Read is that of the connection, or of what was read in advance of it.
func (g *gather) Read(p []byte) (int, error) {
	if g.ahead != nil {
		return g.ahead.Read(p)
	}
	return g.Conn.Read(p)
}

// Conn is a TLS connection that needs few system calls for large writes. One
// goroutine writes at a time.
type Conn struct {
	*tls.Conn
	records *gather
}

// Server returns the VM's end of a connection.
func Server(conn net.Conn, config *tls.Config) *Conn {
	records := &gather{Conn: conn}
	return &Conn{Conn: tls.Server(records, config), records: records}
}

// Client returns the node's end of a connection.
func Client(conn net.Conn, config *tls.Config) *Conn {
	records := &gather{Conn: conn}
	return &Conn{Conn: tls.Client(records, config), records: records}
}

// ReadAhead has size bytes read at once from now on, if so many came, where TLS reads
// record by record. It is called by who reads, or before anybody does.
func (c *Conn) ReadAhead(size int) {
	c.records.ahead = bufio.NewReaderSize(c.records.Conn, size)
}

// Write is that of [tls.Conn]. The handshake's records are not held back: it waits for
// answers to them.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	c.records.hold()
	n, err := c.Conn.Write(p)
	if ferr := c.records.release(); err == nil && ferr != nil {
		return 0, ferr
	}
	return n, err
}

// Close does not wait for a write that its peer does not read.
func (c *Conn) Close() error {
	if c.records.mu.TryLock() {
		c.records.mu.Unlock()
	} else {
		c.records.Close()
	}
	return c.Conn.Close()
}
