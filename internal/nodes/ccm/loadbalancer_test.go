// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/nodes/ccm/localbalancer"
	"github.com/outrigger/outrigger/provider"
)

// balancing is a sky with load balancers.
type balancing struct {
	*sky
	made map[string]provider.LoadBalancerSpec
	err  error
}

func (b *balancing) EnsureLoadBalancer(_ context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	if b.err != nil {
		return nil, b.err
	}
	b.made[spec.Key] = spec
	return b.GetLoadBalancer(context.Background(), spec.Key)
}

func (b *balancing) GetLoadBalancer(_ context.Context, key string) (*provider.LoadBalancer, error) {
	if _, ok := b.made[key]; !ok {
		return nil, fmt.Errorf("%w: %s", provider.ErrNotFound, key)
	}
	return &provider.LoadBalancer{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, b.err
}

func (b *balancing) ListLoadBalancers(_ context.Context, match map[string]string) (list []provider.LoadBalancer, err error) {
	for key, spec := range b.made {
		if provider.HasTags(spec.Tags, match) {
			list = append(list, provider.LoadBalancer{Key: key, Tags: spec.Tags})
		}
	}
	return list, b.err
}

func (b *balancing) DeleteLoadBalancer(_ context.Context, key string) error {
	delete(b.made, key)
	return b.err
}

func service() *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "0d3f-11"},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80, NodePort: 30080, Protocol: v1.ProtocolTCP}, {Port: 443, NodePort: 30443}}},
	}
}

func nodeAt(name string, addresses ...v1.NodeAddress) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Addresses: addresses}}
}

func TestLoadBalancers(t *testing.T) {
	s := &balancing{sky: &sky{}, made: map[string]provider.LoadBalancerSpec{}}
	c, err := New(Options{Name: "sky", Provider: s, Tags: map[string]string{provider.TagCluster: "c1"}})
	if err != nil {
		t.Fatal(err)
	}
	b, ok := c.LoadBalancer()
	if !ok {
		t.Fatal("the power is not seen")
	}
	ctx := t.Context()
	if _, exists, err := b.GetLoadBalancer(ctx, "k", service()); exists || err != nil {
		t.Errorf("before it is made: %v, %v", exists, err)
	}
	nodes := []*v1.Node{
		nodeAt("b", v1.NodeAddress{Type: v1.NodeHostName, Address: "b"}, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "203.0.113.2"}),
		nodeAt("a", v1.NodeAddress{Type: v1.NodeExternalIP, Address: "203.0.113.1"}, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "10.0.0.1"}),
		nodeAt("without"),
	}
	nodes[1].Spec.ProviderID = "sky://i-a"
	wanted := service()
	wanted.Annotations = map[string]string{"example.com/class": "small", v1.LastAppliedConfigAnnotation: "{}"}
	status, err := b.EnsureLoadBalancer(ctx, "k", wanted, nodes)
	if err != nil || len(status.Ingress) != 1 || status.Ingress[0].IP != "192.0.2.1" {
		t.Fatalf("%+v, %v", status, err)
	}
	want := provider.LoadBalancerSpec{
		Key: "a0d3f11", Ports: []provider.LoadBalancerPort{{Port: 80, Target: 30080, Protocol: provider.ProtocolTCP}, {Port: 443, Target: 30443}},
		Backends:    []provider.LoadBalancerBackend{{Name: "a", Addr: netip.MustParseAddr("10.0.0.1"), InstanceID: "i-a"}, {Name: "b", Addr: netip.MustParseAddr("203.0.113.2")}},
		Tags:        map[string]string{provider.TagCluster: "c1", tagService: "web.front"},
		Annotations: map[string]string{"example.com/class": "small"},
	}
	if diff := cmp.Diff(want, s.made["a0d3f11"], cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if err := b.UpdateLoadBalancer(ctx, "k", service(), nodes[:1]); err != nil || len(s.made["a0d3f11"].Backends) != 1 {
		t.Errorf("%v, %+v", err, s.made)
	}
	if err := b.EnsureLoadBalancerDeleted(ctx, "k", service()); err != nil || len(s.made) > 0 {
		t.Errorf("%v, %+v", err, s.made)
	}
	// The controller may still report Nodes for a Service that it just cleaned up after.
	if err := b.UpdateLoadBalancer(ctx, "k", service(), nodes); !errors.Is(err, provider.ErrNotFound) || len(s.made) > 0 {
		t.Errorf("an update after the deletion: %v, %+v", err, s.made)
	}
	s.err = provider.ErrUnavailable
	if _, err := b.EnsureLoadBalancer(ctx, "k", service(), nodes); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("while the cloud is away: %v", err)
	}
}

func TestWhatALoadBalancerCannotKeepIsRefused(t *testing.T) {
	for want, change := range map[string]func(*v1.ServiceSpec){
		"loadBalancerSourceRanges": func(s *v1.ServiceSpec) { s.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} },
		"loadBalancerIP":           func(s *v1.ServiceSpec) { s.LoadBalancerIP = "192.0.2.7" },
		"node port":                func(s *v1.ServiceSpec) { s.Ports[0].NodePort = 0 },
		"sessionAffinity":          func(s *v1.ServiceSpec) { s.SessionAffinity = v1.ServiceAffinityClientIP },
		"spec.ipFamilies":          func(s *v1.ServiceSpec) { s.IPFamilies = []v1.IPFamily{v1.IPv6Protocol} },
		"spec.ipFamilyPolicy": func(s *v1.ServiceSpec) {
			s.IPFamilyPolicy, s.IPFamilies = new(v1.IPFamilyPolicyRequireDualStack), []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
		},
	} {
		changed := service()
		change(&changed.Spec)
		if _, err := new(balancers).specOf(changed, nil); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestFamiliesOfServices(t *testing.T) {
	prefer := v1.IPFamilyPolicyPreferDualStack
	both, six := []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []v1.IPFamily{v1.IPv6Protocol}
	for name, c := range map[string]struct {
		addr     string
		families []v1.IPFamily
		refused  bool
	}{
		"IPv4, one of both": {"192.0.2.1", both, false},
		"IPv6, one of both": {"2001:db8::1", both, false},
		"IPv6":              {"2001:db8::1", six, false},
		"IPv4 for IPv6":     {"192.0.2.1", six, true},
	} {
		changed := service()
		changed.Spec.IPFamilies, changed.Spec.IPFamilyPolicy = c.families, &prefer
		b := &balancers{capability: localbalancer.New(netip.MustParseAddr(c.addr), slog.New(slog.DiscardHandler))}
		if err := b.checkFamilies(changed); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServicesAreLeftAloneWithoutThePower(t *testing.T) {
	without := struct {
		provider.Provider
		provider.Lister
		provider.Getter
	}{&sky{}, &sky{}, &sky{}}
	c, err := New(Options{Name: "sky", Provider: without})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.LoadBalancer(); ok {
		t.Error("a provider without load balancers has some")
	}
}
