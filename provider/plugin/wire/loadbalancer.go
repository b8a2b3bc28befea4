// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

func (s *Server) EnsureLoadBalancer(ctx context.Context, request *pluginpb.EnsureLoadBalancerRequest) (*pluginpb.EnsureLoadBalancerResponse, error) {
	return serve(ctx, s, (*session).call, "EnsureLoadBalancer", request, func(p provider.LoadBalancerController) (*pluginpb.EnsureLoadBalancerResponse, error) {
		ports, err := portsFromWire(request.Ports)
		backends, wrong := backendsFromWire(request.Backends)
		if err = errors.Join(err, wrong); err != nil {
			return nil, fmt.Errorf("%w: EnsureLoadBalancer: %w", provider.ErrInvalidArgument, err)
		}
		made, err := p.EnsureLoadBalancer(ctx, provider.LoadBalancerSpec{
			Key: request.Key, Ports: ports, Backends: backends, Tags: request.Tags, Annotations: request.Annotations,
		})
		return &pluginpb.EnsureLoadBalancerResponse{LoadBalancer: balancerToWire(made)}, err
	})
}

func (s *Server) GetLoadBalancer(ctx context.Context, request *pluginpb.GetLoadBalancerRequest) (*pluginpb.GetLoadBalancerResponse, error) {
	return serve(ctx, s, (*session).call, "GetLoadBalancer", request, func(p provider.LoadBalancerController) (*pluginpb.GetLoadBalancerResponse, error) {
		balancer, err := p.GetLoadBalancer(ctx, request.Key)
		return &pluginpb.GetLoadBalancerResponse{LoadBalancer: balancerToWire(balancer)}, err
	})
}

func (s *Server) ListLoadBalancers(ctx context.Context, request *pluginpb.ListLoadBalancersRequest) (*pluginpb.ListLoadBalancersResponse, error) {
	return serve(ctx, s, (*session).call, "ListLoadBalancers", request, func(p provider.LoadBalancerController) (*pluginpb.ListLoadBalancersResponse, error) {
		list, err := p.ListLoadBalancers(ctx, request.Match)
		return &pluginpb.ListLoadBalancersResponse{LoadBalancers: eachOf(list, balancerToWire)}, err
	})
}

func (s *Server) DeleteLoadBalancer(ctx context.Context, request *pluginpb.DeleteLoadBalancerRequest) (*pluginpb.DeleteLoadBalancerResponse, error) {
	return serve(ctx, s, (*session).call, "DeleteLoadBalancer", request, func(p provider.LoadBalancerController) (*pluginpb.DeleteLoadBalancerResponse, error) {
		return &pluginpb.DeleteLoadBalancerResponse{}, p.DeleteLoadBalancer(ctx, request.Key)
	})
}

func (r *remote) EnsureLoadBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	answer, err := call(ctx, r.client, "EnsureLoadBalancer", r.rpc.EnsureLoadBalancer, &pluginpb.EnsureLoadBalancerRequest{
		Configuration: r.configuration, Key: spec.Key, Ports: portsToWire(spec.Ports), Backends: backendsToWire(spec.Backends),
		Tags: spec.Tags, Annotations: spec.Annotations,
	})
	return read(r, "EnsureLoadBalancer", answer.GetLoadBalancer(), err, balancerFromWire)
}

func (r *remote) GetLoadBalancer(ctx context.Context, key string) (*provider.LoadBalancer, error) {
	answer, err := call(ctx, r.client, "GetLoadBalancer", r.rpc.GetLoadBalancer, &pluginpb.GetLoadBalancerRequest{Configuration: r.configuration, Key: key})
	return read(r, "GetLoadBalancer", answer.GetLoadBalancer(), err, balancerFromWire)
}

func (r *remote) ListLoadBalancers(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
	answer, err := call(ctx, r.client, "ListLoadBalancers", r.rpc.ListLoadBalancers, &pluginpb.ListLoadBalancersRequest{Configuration: r.configuration, Match: match})
	return readAll(r, "ListLoadBalancers", answer.GetLoadBalancers(), err, balancerFromWire)
}

func (r *remote) DeleteLoadBalancer(ctx context.Context, key string) error {
	_, err := call(ctx, r.client, "DeleteLoadBalancer", r.rpc.DeleteLoadBalancer, &pluginpb.DeleteLoadBalancerRequest{Configuration: r.configuration, Key: key})
	return err
}

func balancerToWire(b *provider.LoadBalancer) *pluginpb.LoadBalancer {
	if b == nil {
		return nil
	}
	m := &pluginpb.LoadBalancer{
		Key: b.Key, Tags: b.Tags, PortsKnown: b.Ports != nil, Ports: portsToWire(b.Ports),
		BackendsKnown: b.Backends != nil, Backends: backendsToWire(b.Backends),
	}
	m.Addresses = each(b.Addrs, netip.Addr.String)
	return m
}

func balancerFromWire(m *pluginpb.LoadBalancer) (*provider.LoadBalancer, error) {
	if m == nil {
		return nil, errors.New("neither a load balancer nor an error")
	}
	b := &provider.LoadBalancer{Key: m.Key, Tags: m.Tags}
	for _, text := range m.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("load balancer %s: %q is not an address", m.Key, text)
		}
		b.Addrs = append(b.Addrs, addr)
	}
	ports, err := portsFromWire(m.Ports)
	backends, wrong := backendsFromWire(m.Backends)
	if m.PortsKnown {
		b.Ports = ports
	}
	if m.BackendsKnown {
		b.Backends = backends
	}
	if err = errors.Join(err, wrong); err != nil {
		return nil, err
	}
	return b, nil
}

func portsToWire(ports []provider.LoadBalancerPort) []*pluginpb.LoadBalancerPort {
	return each(ports, func(p provider.LoadBalancerPort) *pluginpb.LoadBalancerPort {
		return &pluginpb.LoadBalancerPort{Port: uint32(p.Port), Target: uint32(p.Target), Protocol: p.Protocol}
	})
}

// portsFromWire never returns nil, which says that ports are unknown.
func portsFromWire(list []*pluginpb.LoadBalancerPort) ([]provider.LoadBalancerPort, error) {
	ports := []provider.LoadBalancerPort{}
	for _, m := range list {
		if m.Port > math.MaxUint16 || m.Target > math.MaxUint16 {
			return nil, fmt.Errorf("port %d to %d: there are %d", m.Port, m.Target, math.MaxUint16)
		}
		ports = append(ports, provider.LoadBalancerPort{Port: uint16(m.Port), Target: uint16(m.Target), Protocol: m.Protocol})
	}
	return ports, nil
}

func backendsToWire(backends []provider.LoadBalancerBackend) []*pluginpb.LoadBalancerBackend {
	return each(backends, func(b provider.LoadBalancerBackend) *pluginpb.LoadBalancerBackend {
		m := &pluginpb.LoadBalancerBackend{Name: b.Name, InstanceId: b.InstanceID}
		if b.Addr.IsValid() {
			m.Address = b.Addr.String()
		}
		return m
	})
}

// backendsFromWire never returns nil, which says that backends are unknown.
func backendsFromWire(list []*pluginpb.LoadBalancerBackend) ([]provider.LoadBalancerBackend, error) {
	backends := []provider.LoadBalancerBackend{}
	for _, m := range list {
		b := provider.LoadBalancerBackend{Name: m.Name, InstanceID: m.InstanceId}
		if m.Address != "" {
			addr, err := netip.ParseAddr(m.Address)
			if err != nil {
				return nil, fmt.Errorf("backend %s: %q is not an address", m.Name, m.Address)
			}
			b.Addr = addr
		}
		backends = append(backends, b)
	}
	return backends, nil
}
