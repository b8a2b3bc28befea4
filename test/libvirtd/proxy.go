// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy stands between a client and the daemon and breaks connections.
type Proxy struct {
	// Socket is what clients dial, URI the same as the provider wants it.
	Socket, URI string

	target   string
	listener net.Listener
	// budget is how many bytes of replies pass before everything is cut;
	// negative means no limit.
	budget atomic.Int64
	asked  atomic.Int64
	told   atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// Proxy starts one in front of the daemon.
func (d *Daemon) Proxy(t testing.TB) *Proxy {
	t.Helper()
	p := &Proxy{Socket: d.Dir + "/proxy.sock", target: d.Socket, conns: map[net.Conn]struct{}{}}
	p.URI = "qemu+unix:///system?socket=" + p.Socket
	p.budget.Store(-1)
	listener, err := net.Listen("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	p.listener = listener
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// CutAfter lets so many bytes of replies pass, on all connections together,
// and then closes them all; later connections are served without limit.
func (p *Proxy) CutAfter(bytes int64) { p.budget.Store(bytes) }

// Told is how many bytes of replies have passed, Asked how many of requests.
func (p *Proxy) Told() int64  { return p.told.Load() }
func (p *Proxy) Asked() int64 { return p.asked.Load() }

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.target)
	if err != nil {
		return // the daemon is down: the client sees a closed connection
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}()
	var both sync.WaitGroup
	both.Go(func() {
		defer server.Close()
		io.Copy(io.MultiWriter(server, counter{&p.asked}), client)
	})
	both.Go(func() {
		defer client.Close()
		p.reply(client, server)
	})
	both.Wait()
}

// reply copies what the daemon says until the budget is spent.
func (p *Proxy) reply(client io.Writer, server io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		allowed, cut := p.spend(int64(n))
		p.told.Add(allowed)
		if _, failed := client.Write(buffer[:allowed]); failed != nil || err != nil {
			return
		}
		if cut {
			p.Cut()
			return
		}
	}
}

// spend returns how many of n bytes may pass, and whether they were the last.
func (p *Proxy) spend(n int64) (allowed int64, cut bool) {
	for {
		left := p.budget.Load()
		switch {
		case left < 0:
			return n, false
		case n < left:
			if p.budget.CompareAndSwap(left, left-n) {
				return n, false
			}
		case p.budget.CompareAndSwap(left, -1):
			return left, true
		}
	}
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(data []byte) (int, error) {
	c.n.Add(int64(len(data)))
	return len(data), nil
}
