// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Times of the health check and of a dial, as in the file for HAProxy.
const (
	checkEvery = time.Second
	dialLimit  = 5 * time.Second
)

// Proxy balances connections. Its zero value with a Log is ready.
type Proxy struct {
	Log *slog.Logger
	// Dial connects to a backend; nil is that of package net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// CheckEvery is how often a backend is looked at; 0 is every second, less is never.
	CheckEvery time.Duration

	mu       sync.Mutex
	backends []*backend
	next     atomic.Uint32
}

// backend is a server and whether it answered last.
type backend struct {
	Backend
	up   atomic.Bool
	stop context.CancelFunc
}

func (p *Proxy) dial(ctx context.Context, address string, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if p.Dial != nil {
		return p.Dial(ctx, "tcp", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// Use replaces the backends. Connections that are open stay; what is known of a
// backend that stays is kept.
func (p *Proxy) Use(ctx context.Context, list []Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.backends
	p.backends = nil
	for _, b := range list {
		i := slices.IndexFunc(old, func(o *backend) bool { return o.Backend == b })
		if i >= 0 {
			p.backends = append(p.backends, old[i])
			old = slices.Delete(slices.Clone(old), i, i+1)
			continue
		}
		checking, stop := context.WithCancel(ctx)
		added := &backend{Backend: b, stop: stop}
		if p.CheckEvery >= 0 {
			go p.check(checking, added)
		}
		p.backends = append(p.backends, added)
	}
	for _, gone := range old {
		gone.stop()
	}
}

// check keeps up to date whether a backend takes connections.
func (p *Proxy) check(ctx context.Context, b *backend) {
	every := p.CheckEvery
	if every == 0 {
		every = checkEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		conn, err := p.dial(ctx, b.Address(), every)
		if err == nil {
			conn.Close()
		}
		if ctx.Err() != nil {
			return
		}
		if up := err == nil; b.up.Swap(up) != up {
			p.Log.Info("backend", "name", b.Name, "address", b.Address(), "up", up)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// order returns the backends as they are to be tried: in turn, those that are
// up first. The others come last, because a check may be late.
func (p *Proxy) order() []*backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	var up, down []*backend
	for i := range p.backends {
		b := p.backends[(i+int(p.next.Load()))%len(p.backends)]
		if b.up.Load() {
			up = append(up, b)
		} else {
			down = append(down, b)
		}
	}
	p.next.Add(1)
	return append(up, down...)
}

// Serve takes connections until ctx ends.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	var open sync.WaitGroup
	defer open.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // such as too many open files: others may end
			p.Log.Warn("accept", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		open.Go(func() { p.serve(ctx, conn) })
	}
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := p.connect(ctx)
	if err != nil {
		p.Log.Warn("no backend", "client", client.RemoteAddr().String(), "error", err)
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
	var both sync.WaitGroup
	both.Go(func() { forward(server, client) })
	both.Go(func() { forward(client, server) })
	both.Wait()
}

func (p *Proxy) connect(ctx context.Context) (net.Conn, error) {
	err := errors.New("there is none")
	for _, b := range p.order() {
		var conn net.Conn
		if conn, err = p.dial(ctx, b.Address(), dialLimit); err == nil {
			return conn, nil
		}
		b.up.Store(false)
		err = fmt.Errorf("%s: %w", b.Name, err)
	}
	return nil, err
}

// forward copies until src ends, and lets dst know. An error ends both ways.
func forward(dst, src net.Conn) {
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		src.Close()
		return
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
