// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/docker"
)

func balancerSpec(key string, ports ...provider.LoadBalancerPort) provider.LoadBalancerSpec {
	return provider.LoadBalancerSpec{Key: key, Ports: ports, Tags: map[string]string{provider.TagCluster: "c1"}, Backends: []provider.LoadBalancerBackend{{Name: "n1", Addr: netip.MustParseAddr("10.0.0.1")}}}
}

// balancers are the containers of load balancers at an engine.
func balancersAt(t *testing.T, p *Provider, key string) []string {
	t.Helper()
	c, err := p.balancer(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return nil
	}
	return []string{c.ID}
}

func TestBalancer(t *testing.T) {
	e := sim.Start(t, "1.41")
	p := mustOpen(t, simConfig(e, func(c *Config) { c.BalancerImage = sim.Image }))
	spec := balancerSpec("a1", provider.LoadBalancerPort{Port: 80, Target: 30080}, provider.LoadBalancerPort{Port: 443, Target: 30443})
	var made *provider.LoadBalancer
	var group sync.WaitGroup
	for range 4 { // at the same time
		group.Go(func() {
			if b, err := mustOpen(t, p.cfg).EnsureLoadBalancer(t.Context(), spec); err != nil || len(b.Addrs) == 0 {
				t.Errorf("one of four: %+v, %v", b, err)
			}
		})
	}
	group.Wait()
	made, err := p.EnsureLoadBalancer(t.Context(), spec)
	if err != nil || len(made.Addrs) == 0 {
		t.Fatalf("%+v, %v", made, err)
	}
	first := balancersAt(t, p, "a1")
	text, err := e.ReadFile(first[0], "/etc/cluster-loadbalancer/443.cfg")
	if err != nil || !strings.Contains(text, "bind *:443") || !strings.Contains(text, "server n1 10.0.0.1:30443") {
		t.Errorf("the file of port 443: %q, %v", text, err)
	}
	spec.Backends = append(spec.Backends, provider.LoadBalancerBackend{Name: "n2", Addr: netip.MustParseAddr("10.0.0.2")})
	again, err := p.EnsureLoadBalancer(t.Context(), spec)
	if err != nil || again.Addrs[0] != made.Addrs[0] || balancersAt(t, p, "a1")[0] != first[0] {
		t.Errorf("with one more backend: %+v, %v; want the same container", again, err)
	}
	if text, _ := e.ReadFile(first[0], "/etc/cluster-loadbalancer/80.cfg"); !strings.Contains(text, "server n2 10.0.0.2:30080") {
		t.Errorf("the new backend is not in %q", text)
	}
	if got, err := p.GetLoadBalancer(t.Context(), "a1"); err != nil || got.Addrs[0] != made.Addrs[0] {
		t.Errorf("%+v, %v", got, err)
	}
	spec.Ports = spec.Ports[:1]
	if _, err := p.EnsureLoadBalancer(t.Context(), spec); err != nil || balancersAt(t, p, "a1")[0] == first[0] {
		t.Errorf("other ports: %v; want another container", err)
	}
	if list, err := p.ListInstances(t.Context(), map[string]string{provider.TagCluster: "c1"}); err != nil || len(list) > 0 {
		t.Errorf("a load balancer is shown as instance: %+v, %v", list, err)
	}
	for range 2 {
		if err := p.DeleteLoadBalancer(t.Context(), "a1"); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.GetLoadBalancer(t.Context(), "a1"); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("after its deletion: %v", err)
	}
	if left, _ := e.Leaks(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestBalancerThatCannotStart: an engine that died in the middle of a start never starts that
// container again; the next call makes another.
func TestBalancerThatCannotStart(t *testing.T) {
	e := sim.Start(t, "1.41")
	p := mustOpen(t, simConfig(e, func(c *Config) { c.BalancerImage = sim.Image }))
	spec := balancerSpec("a1", provider.LoadBalancerPort{Port: 80, Target: 30080})
	e.World.Script(cloudsim.Fault{Action: "ContainerStart", Code: "start", Status: http.StatusInternalServerError, Message: "failed to create task for container: task already exists"})
	if _, err := p.EnsureLoadBalancer(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "task already exists") {
		t.Errorf("error %v, want the engine's", err)
	}
	if left := balancersAt(t, p, "a1"); left != nil {
		t.Errorf("container %v, which never starts, is still there", left)
	}
	if b, err := p.EnsureLoadBalancer(t.Context(), spec); err != nil || len(b.Addrs) == 0 {
		t.Errorf("the next one: %+v, %v", b, err)
	}
}

func TestBalancerRefused(t *testing.T) {
	e := sim.Start(t, "1.41")
	p := mustOpen(t, simConfig(e, func(c *Config) { c.BalancerImage = "no-such-image" }))
	port := provider.LoadBalancerPort{Port: 80, Target: 30080}
	for name, test := range map[string]struct {
		spec  provider.LoadBalancerSpec
		class error
		want  string
	}{
		"no port":       {balancerSpec("a1"), provider.ErrInvalidArgument, "no port"},
		"key":           {balancerSpec("A_1", port), provider.ErrInvalidArgument, "A_1"},
		"port 0":        {balancerSpec("a1", provider.LoadBalancerPort{Port: 80}), provider.ErrInvalidArgument, "port 80 to 0"},
		"UDP":           {balancerSpec("a1", provider.LoadBalancerPort{Port: 80, Target: 1, Protocol: provider.ProtocolUDP}), provider.ErrInvalidArgument, "port 80 is UDP"},
		"image missing": {balancerSpec("a1", port), provider.ErrNotFound, "DOCKER_LOADBALANCER_IMAGE"},
	} {
		if _, err := p.EnsureLoadBalancer(t.Context(), test.spec); !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e.AddForeign(balancerName("theirs"), nil, nil)
	if _, err := p.EnsureLoadBalancer(t.Context(), balancerSpec("theirs", port)); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("a container of that name that is not ours: %v", err)
	}
	if err := p.DeleteLoadBalancer(t.Context(), "theirs"); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("its deletion: %v", err)
	}
}
