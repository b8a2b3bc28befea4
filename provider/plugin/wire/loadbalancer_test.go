// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func balancerSpec() provider.LoadBalancerSpec {
	return provider.LoadBalancerSpec{
		Key:   "a1",
		Ports: []provider.LoadBalancerPort{{Port: 53, Target: 30053, Protocol: provider.ProtocolUDP}, {Port: 65535, Target: 32767}},
		Backends: []provider.LoadBalancerBackend{
			{Name: "n1", Addr: netip.MustParseAddr("fd00::1"), InstanceID: "i-1"}, {Name: "n2", Addr: netip.MustParseAddr("10.0.0.2")},
		},
		Tags: map[string]string{provider.TagCluster: "c1"}, Annotations: map[string]string{"example.com/class": "small"},
	}
}

// balancing keeps the last spec and returns what it is told to.
type balancing struct {
	*stub
	spec   provider.LoadBalancerSpec
	answer *provider.LoadBalancer
}

func (b *balancing) EnsureLoadBalancer(_ context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	b.spec = spec
	return b.answer, nil
}
func (b *balancing) GetLoadBalancer(context.Context, string) (*provider.LoadBalancer, error) {
	return b.answer, nil
}
func (b *balancing) ListLoadBalancers(context.Context, map[string]string) ([]provider.LoadBalancer, error) {
	return []provider.LoadBalancer{*b.answer, *b.answer}, nil
}
func (b *balancing) DeleteLoadBalancer(context.Context, string) error { return nil }

// TestLoadBalancersCross: all of a spec arrives, and all of an answer, also that
// something is unknown.
func TestLoadBalancersCross(t *testing.T) {
	spec := balancerSpec()
	for name, answer := range map[string]*provider.LoadBalancer{
		"all":     {Key: "a1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Tags: spec.Tags, Ports: spec.Ports, Backends: spec.Backends},
		"nothing": {Key: "a1", Ports: []provider.LoadBalancerPort{}, Backends: []provider.LoadBalancerBackend{}},
		"unknown": {Key: "a1"},
	} {
		b := &balancing{stub: &stub{}, answer: answer}
		remote := start(t, wire.Options{Name: "stub", Cloud: fake.NewManager(), Configured: b}).provider(t, "", nil)
		power, ok := provider.As[provider.LoadBalancerController](remote)
		if !ok || !slices.Contains(provider.Capabilities(remote), provider.CapabilityLoadBalancers) {
			t.Fatalf("the capability does not cross: %v", provider.Capabilities(remote))
		}
		made, err := power.EnsureLoadBalancer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(spec, b.spec, sameAddr); diff != "" {
			t.Errorf("%s: the spec (-sent +arrived):\n%s", name, diff)
		}
		found, getErr := power.GetLoadBalancer(t.Context(), "a1")
		list, listErr := power.ListLoadBalancers(t.Context(), spec.Tags)
		if err := errors.Join(getErr, listErr); err != nil || len(list) != 2 {
			t.Fatalf("%s: %v, %v", name, list, err)
		}
		for _, got := range []*provider.LoadBalancer{made, found, &list[0], &list[1]} {
			if diff := cmp.Diff(answer, got, sameAddr); diff != "" {
				t.Errorf("%s: the answer (-sent +arrived):\n%s", name, diff)
			}
		}
	}
}

// TestLoadBalancersOfAnOlderPlugin: one that was made before there was the power
// works, and is known to lack it.
func TestLoadBalancersOfAnOlderPlugin(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, wire.Options{Name: "fake", Cloud: fake.NewManager(), Configured: cloud})
	older := &olderConn{s.dial(t)}
	capabilities, err := wire.Configure(t.Context(), older, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	capabilities = slices.DeleteFunc(capabilities, func(c provider.Capability) bool { return c == provider.CapabilityLoadBalancers })
	remote := wire.NewProvider(older, "", capabilities)
	if _, ok := provider.As[provider.LoadBalancerController](remote); ok {
		t.Error("the plugin does not name the capability and has it")
	}
	if _, ok := provider.As[provider.Lister](remote); !ok {
		t.Error("the plugin has lost its other capabilities")
	}
	if _, err := remote.(provider.LoadBalancerController).EnsureLoadBalancer(t.Context(), balancerSpec()); !errors.Is(err, provider.ErrUnimplemented) {
		t.Errorf("a call that it does not know: %v", err)
	}
}

// olderConn is a connection to a plugin that does not know load balancers.
type olderConn struct{ *grpc.ClientConn }

func (c *olderConn) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	if strings.Contains(method, "LoadBalancer") {
		return status.Error(codes.Unimplemented, "unknown method "+method)
	}
	return c.ClientConn.Invoke(ctx, method, request, answer, options...)
}

// TestLoadBalancersWronglyAsked: what is not a port or address is refused by
// the half that reads it.
func TestLoadBalancersWronglyAsked(t *testing.T) {
	b := &balancing{stub: &stub{}, answer: &provider.LoadBalancer{Key: "a1"}}
	client := pluginpb.NewProviderClient(start(t, wire.Options{Name: "stub", Cloud: fake.NewManager(), Configured: b}).dial(t))
	for want, request := range map[string]*pluginpb.EnsureLoadBalancerRequest{
		"port 65536": {Key: "a1", Ports: []*pluginpb.LoadBalancerPort{{Port: 65536, Target: 1}}},
		`"10.0.0"`:   {Key: "a1", Backends: []*pluginpb.LoadBalancerBackend{{Name: "n1", Address: "10.0.0"}}},
	} {
		if _, err := client.EnsureLoadBalancer(t.Context(), request); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestLoadBalancersWronglyAnswered: a plugin that returns nonsense is reported.
func TestLoadBalancersWronglyAnswered(t *testing.T) {
	b := &balancing{stub: &stub{}}
	remote := start(t, wire.Options{Name: "stub", Cloud: fake.NewManager(), Configured: b}).provider(t, "", nil)
	if _, err := remote.(provider.LoadBalancerController).GetLoadBalancer(t.Context(), "a1"); !errors.Is(err, provider.ErrUnknown) || !strings.Contains(err.Error(), "neither a load balancer nor an error") {
		t.Errorf("%v", err)
	}
}
