// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// balancer is a load balancer.
type balancer struct {
	ID string `json:"id"`
	provider.LoadBalancer
	// Lists counts down until lists show it.
	Lists int `json:"lists"`
}

// snapshot returns a copy that shares nothing with b.
func (b *balancer) snapshot() provider.LoadBalancer {
	copied := b.LoadBalancer
	copied.Addrs, copied.Tags = slices.Clone(b.Addrs), maps.Clone(b.Tags)
	copied.Ports, copied.Backends = slices.Clone(b.Ports), slices.Clone(b.Backends)
	return copied
}

// EnsureLoadBalancer makes the load balancer of a key, or changes the ports and
// backends of the one there is. A partial effect leaves it without backends.
func (c *Cloud) EnsureLoadBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	fault, err := c.begin(ctx, OpEnsureBalancer)
	if err != nil {
		return nil, err
	}
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("fake: ensure load balancer: %w", err)
	}
	var made provider.LoadBalancer
	err = c.store.update(func(s *state) error {
		b, err := c.balance(s, spec)
		if err != nil {
			return err
		}
		b.Ports, b.Backends = slices.Clone(spec.Ports), append([]provider.LoadBalancerBackend{}, spec.Backends...)
		if fault.Effect == EffectPartial {
			b.Backends = []provider.LoadBalancerBackend{}
		}
		made = b.snapshot()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("fake: ensure load balancer: %w", err)
	}
	if reply := fault.reply(OpEnsureBalancer); reply != nil {
		return nil, reply
	}
	return &made, nil
}

// balance returns the load balancer of the key, made if need be.
func (c *Cloud) balance(s *state, spec provider.LoadBalancerSpec) (*balancer, error) {
	if b := s.Balancers[spec.Key]; b != nil {
		return b, nil
	}
	addrs, err := s.freeAddresses(c.options.Network, 1)
	if err != nil {
		return nil, err
	}
	s.Serial++
	b := &balancer{
		ID:           fmt.Sprintf("lb-%06d", s.Serial),
		LoadBalancer: provider.LoadBalancer{Key: spec.Key, Addrs: addrs, Tags: maps.Clone(spec.Tags)},
		Lists:        c.options.Eventual.Lists,
	}
	if s.Balancers == nil {
		s.Balancers = map[string]*balancer{}
	}
	s.Balancers[spec.Key] = b
	s.Ledger = append(s.Ledger, Resource{ID: b.ID, Kind: KindLoadBalancer, Instance: b.ID, Key: spec.Key, Tags: maps.Clone(spec.Tags), Made: c.options.Now().UTC()})
	return b, nil
}

// GetLoadBalancer returns the one of a key.
func (c *Cloud) GetLoadBalancer(ctx context.Context, key string) (*provider.LoadBalancer, error) {
	return answer(ctx, c, OpGetBalancer, func(s *state) (*provider.LoadBalancer, error) {
		b := s.Balancers[key]
		if b == nil {
			return nil, fmt.Errorf("fake: load balancer %q: %w", key, provider.ErrNotFound)
		}
		balancer := b.snapshot()
		return &balancer, nil
	})
}

// ListLoadBalancers lists by tags, in the order of their keys.
func (c *Cloud) ListLoadBalancers(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("fake: list load balancers: %w: no tags to match", provider.ErrInvalidArgument)
	}
	return answer(ctx, c, OpListBalancers, func(s *state) (list []provider.LoadBalancer, err error) {
		for _, key := range slices.Sorted(maps.Keys(s.Balancers)) {
			b := s.Balancers[key]
			switch {
			case !provider.HasTags(b.Tags, match):
			case b.Lists > 0:
				b.Lists--
			default:
				list = append(list, b.snapshot())
			}
		}
		return list, nil
	})
}

// DeleteLoadBalancer removes the one of a key.
func (c *Cloud) DeleteLoadBalancer(ctx context.Context, key string) error {
	_, err := answer(ctx, c, OpDeleteBalancer, func(s *state) (struct{}, error) {
		if b := s.Balancers[key]; b != nil {
			s.deleted(b.ID, c.options.Now().UTC())
			delete(s.Balancers, key)
		}
		return struct{}{}, nil
	})
	return err
}

// addresses returns the addresses that are taken.
func (s *state) addresses() map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	for _, r := range s.Instances {
		for _, addr := range r.IPs {
			used[addr] = true
		}
	}
	for _, b := range s.Balancers {
		for _, addr := range b.Addrs {
			used[addr] = true
		}
	}
	return used
}
