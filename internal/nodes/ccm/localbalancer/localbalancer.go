// SPDX-License-Identifier: Apache-2.0

// Package localbalancer has the load balancers of a provider that has none of its
// own: this process takes the connections, at one address of its machine. Load
// balancers live as long as the process; a cloud controller manager makes all
// again when it begins to lead.
package localbalancer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/outrigger/outrigger/internal/loadbalancer"
	"github.com/outrigger/outrigger/provider"
)

// Balancer implements [provider.LoadBalancerController].
type Balancer struct {
	addr   netip.Addr
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	ports map[uint16]*port
	tags  map[string]map[string]string // by key
}

var _ provider.LoadBalancerController = (*Balancer)(nil)

type port struct {
	key   string
	proxy *loadbalancer.Proxy
	stop  context.CancelFunc
	ended chan struct{}
}

// New returns one that listens on nothing yet.
func New(addr netip.Addr, log *slog.Logger) *Balancer {
	ctx, cancel := context.WithCancel(context.Background())
	return &Balancer{addr: addr, log: log, ctx: ctx, cancel: cancel, ports: map[uint16]*port{}, tags: map[string]map[string]string{}}
}

// Address returns the address of all load balancers.
func (b *Balancer) Address() netip.Addr { return b.addr }

// Close ends all connections.
func (b *Balancer) Close() {
	b.cancel()
	b.work.Wait()
}

// EnsureLoadBalancer implements [provider.LoadBalancerController]. A port is one
// Service's: they all have the same address.
func (b *Balancer) EnsureLoadBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	if err := spec.CheckTCP(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	wanted := map[uint16]uint16{}
	for _, p := range spec.Ports {
		if there := b.ports[p.Port]; there != nil && there.key != spec.Key {
			return nil, fmt.Errorf("%w: port %d of %s is another Service's", provider.ErrAlreadyExists, p.Port, b.addr)
		}
		wanted[p.Port] = p.Target
	}
	for number, p := range b.ports {
		if _, ok := wanted[number]; p.key == spec.Key && !ok {
			b.close(number)
		}
	}
	for number, target := range wanted {
		if err := b.ensure(ctx, spec, number, target); err != nil {
			return nil, err
		}
	}
	b.tags[spec.Key] = maps.Clone(spec.Tags)
	return b.answer(spec.Key), nil
}

// ensure listens on a port, unless it does, and tells it its backends; the lock
// is held.
func (b *Balancer) ensure(ctx context.Context, spec provider.LoadBalancerSpec, number, target uint16) error {
	p := b.ports[number]
	if p == nil {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(b.addr.String(), strconv.Itoa(int(number))))
		if err != nil {
			return fmt.Errorf("%w: this process cannot listen for the Service: %w", provider.ErrUnavailable, err)
		}
		p = b.open(spec.Key, l)
		b.ports[number] = p
	}
	var list []loadbalancer.Backend
	for _, backend := range spec.Backends {
		list = append(list, loadbalancer.Backend{Name: backend.Name, Host: backend.Addr.String(), Port: int(target)})
	}
	p.proxy.Use(b.ctx, list)
	return nil
}

func (b *Balancer) open(key string, l net.Listener) *port {
	ctx, stop := context.WithCancel(b.ctx)
	p := &port{key: key, proxy: &loadbalancer.Proxy{Log: b.log.With("port", l.Addr().String())}, stop: stop, ended: make(chan struct{})}
	b.work.Go(func() {
		defer close(p.ended)
		if err := p.proxy.Serve(ctx, l); err != nil {
			p.proxy.Log.Error("no longer served", "error", err)
		}
	})
	return p
}

// close ends a port and waits until it is free; the lock is held.
func (b *Balancer) close(number uint16) {
	p := b.ports[number]
	p.proxy.Use(b.ctx, nil)
	p.stop()
	<-p.ended
	delete(b.ports, number)
}

func (b *Balancer) answer(key string) *provider.LoadBalancer {
	return &provider.LoadBalancer{Key: key, Addrs: []netip.Addr{b.addr}, Tags: maps.Clone(b.tags[key])}
}

// ListLoadBalancers implements [provider.LoadBalancerController].
func (b *Balancer) ListLoadBalancers(_ context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: list load balancers: no tags to match", provider.ErrInvalidArgument)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []provider.LoadBalancer
	for key, tags := range b.tags {
		if provider.HasTags(tags, match) {
			list = append(list, *b.answer(key))
		}
	}
	return list, nil
}

// GetLoadBalancer implements [provider.LoadBalancerController].
func (b *Balancer) GetLoadBalancer(_ context.Context, key string) (*provider.LoadBalancer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.ports {
		if p.key == key {
			return b.answer(key), nil
		}
	}
	return nil, fmt.Errorf("%w: this process balances nothing for %s", provider.ErrNotFound, key)
}

// DeleteLoadBalancer implements [provider.LoadBalancerController].
func (b *Balancer) DeleteLoadBalancer(_ context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for number, p := range b.ports {
		if p.key == key {
			b.close(number)
		}
	}
	delete(b.tags, key)
	return nil
}
