// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

// balancerSpec is that of a Service with an instance for each id.
func balancerSpec(key string, ids ...string) provider.LoadBalancerSpec {
	spec := provider.LoadBalancerSpec{
		Key: key, Ports: []provider.LoadBalancerPort{{Port: 80, Target: 30080}, {Port: 53, Target: 30053, Protocol: provider.ProtocolUDP}},
		Tags: map[string]string{provider.TagCluster: "c1", "outrigger-service": "web.front"}, Annotations: map[string]string{},
	}
	for _, id := range ids {
		spec.Backends = append(spec.Backends, provider.LoadBalancerBackend{Name: "node-" + id, InstanceID: id})
	}
	return spec
}

// node is an instance that somebody else made, as those of node pools.
func node(c *sim.Cloud) string { return c.AddForeign(map[string]string{"pool": "workers"}) }

func mustEnsure(t testing.TB, p *Provider, spec provider.LoadBalancerSpec) *provider.LoadBalancer {
	t.Helper()
	made, err := p.EnsureLoadBalancer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// wantBalancer looks into the cloud's books: there is one, as the spec says.
func wantBalancer(t testing.TB, c *sim.Cloud, spec provider.LoadBalancerSpec) sim.Balancer {
	t.Helper()
	var ids, listeners []string
	for _, b := range spec.Backends {
		ids = append(ids, b.InstanceID)
	}
	slices.Sort(ids)
	for _, p := range spec.Ports {
		listeners = append(listeners, fmt.Sprintf("%s %d to %d", protocolOf(p), p.Port, p.Target))
	}
	slices.Sort(listeners)
	var own []sim.Balancer
	for _, b := range c.Balancers() {
		if b.Tags[tagBalancer] == spec.Key {
			own = append(own, b)
		}
	}
	if len(own) != 1 {
		t.Fatalf("%d load balancers of %s: %+v", len(own), spec.Key, own)
	}
	got := own[0]
	slices.Sort(got.Listeners)
	if diff := cmp.Diff([][]string{ids, listeners}, [][]string{got.Servers, got.Listeners}); diff != "" {
		t.Errorf("servers and listeners of %s (-want +got):\n%s", spec.Key, diff)
	}
	return got
}

// TestBalancer goes through the life of one: it keeps id and address.
func TestBalancer(t *testing.T) {
	c := newCloud(t, sim.Options{})
	c.SetLag(2)
	p := newProvider(t, settings(c))
	a, b := node(c), node(c)
	foreign := c.AddForeignBalancer(map[string]string{provider.TagCluster: "c1"})
	spec := balancerSpec("a1", a)
	made := mustEnsure(t, p, spec)
	first := wantBalancer(t, c, spec)
	if made.Key != "a1" || made.Addrs[0].String() != first.Address || first.AddressType != addressInternet || made.Tags[tagBalancer] != "" || made.Tags[provider.TagCluster] != "c1" {
		t.Errorf("%+v of %+v", made, first)
	}
	for _, change := range []func(){
		func() { spec.Backends = balancerSpec("", b, a).Backends },
		func() { spec.Backends = balancerSpec("", b).Backends },
		func() { spec.Ports[0].Target = 31080 },
		func() { spec.Ports = spec.Ports[:1]; spec.Ports[0].Protocol = provider.ProtocolUDP },
		func() { spec.Backends = nil },
		func() {
			spec.Backends, spec.Ports = balancerSpec("", a).Backends, nil
			for port := range uint16(7) {
				spec.Ports = append(spec.Ports, provider.LoadBalancerPort{Port: 80 + port, Target: 30080 + port})
			}
		},
	} {
		change()
		mustEnsure(t, p, spec)
		if now := wantBalancer(t, c, spec); now.ID != first.ID {
			t.Errorf("it was made again: %s, then %s", first.ID, now.ID)
		}
	}
	c.ResetCalls()
	mustEnsure(t, newProvider(t, settings(c)), spec)
	if diff := cmp.Diff(map[string]int{"slb:DescribeLoadBalancers": 1, "slb:DescribeLoadBalancerAttribute": 1, "slb:DescribeLoadBalancerListeners": 4}, c.Calls()); diff != "" {
		t.Errorf("calls with nothing to do (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := p.DeleteLoadBalancer(t.Context(), "a1"); err != nil {
			t.Fatal(err)
		}
	}
	if left := c.Balancers(); len(left) != 1 || left[0].ID != foreign {
		t.Errorf("left: %+v", left)
	}
	wantNothing(t, c)
}

// TestBalancerKilledAtEachStep: the process ends before or after each call, with
// the reply lost, and another goes on from what the cloud shows.
func TestBalancerKilledAtEachStep(t *testing.T) {
	calls := 0
	for n := 0; n == 0 || n <= calls; n++ {
		for name, fault := range map[string]cloudsim.Fault{"before": cloudsim.Unreachable("*"), "after": cloudsim.LostReply("*")} {
			c := newCloud(t, sim.Options{Lag: time.Nanosecond})
			c.SetLag(n % 3)
			a, b := node(c), node(c)
			spec := balancerSpec("a1", a)
			dying := newProvider(t, settings(c))
			c.Script(fault.Skipping(n).Repeated(1000))
			err := killed(t, dying, spec, balancerSpec("a1", b))
			if err != nil && !errors.Is(err, provider.ErrUnavailable) {
				t.Errorf("%s call %d: %v", name, n, err)
			}
			c.ClearFaults()
			if n == 0 {
				calls = livingCalls(t)
			}
			spec = balancerSpec("a1", a, b)
			mustEnsure(t, newProvider(t, settings(c)), spec)
			wantBalancer(t, c, spec)
			dying = newProvider(t, settings(c))
			c.Script(fault.Skipping(n % 3).Repeated(1000))
			_ = dying.DeleteLoadBalancer(t.Context(), "a1") // it may fail, or not
			c.ClearFaults()
			if err := newProvider(t, settings(c)).DeleteLoadBalancer(t.Context(), "a1"); err != nil {
				t.Errorf("%s call %d: delete: %v", name, n, err)
			}
			wantNothing(t, c)
		}
	}
	if calls < 10 {
		t.Errorf("only %d steps", calls)
	}
}

// killed makes one load balancer and changes it, and returns where it ended.
func killed(t testing.TB, p *Provider, specs ...provider.LoadBalancerSpec) error {
	for _, spec := range specs {
		if _, err := p.EnsureLoadBalancer(t.Context(), spec); err != nil {
			return err
		}
	}
	return nil
}

// livingCalls is how many calls killed takes when nothing goes wrong.
func livingCalls(t testing.TB) (n int) {
	c := newCloud(t, sim.Options{Lag: time.Nanosecond})
	if err := killed(t, newProvider(t, settings(c)), balancerSpec("a1", node(c)), balancerSpec("a1", node(c))); err != nil {
		t.Fatal(err)
	}
	for _, count := range c.Calls() {
		n += count
	}
	return n
}

// TestBalancerMadeAnew: the client tokens of earlier ones are used up.
func TestBalancerMadeAnew(t *testing.T) {
	c := newCloud(t, sim.Options{Lag: time.Nanosecond})
	spec := balancerSpec("a1")
	for range 3 {
		p := newProvider(t, settings(c))
		mustEnsure(t, p, spec)
		wantBalancer(t, c, spec)
		if err := p.DeleteLoadBalancer(t.Context(), "a1"); err != nil {
			t.Fatal(err)
		}
	}
	wantNothing(t, c)
}

// TestBalancerDoubles: where the cloud has forgotten a token there may be two;
// the older stays.
func TestBalancerDoubles(t *testing.T) {
	c := newCloud(t, sim.Options{Lag: time.Nanosecond})
	spec := balancerSpec("a1")
	mustEnsure(t, newProvider(t, settings(c)), spec)
	first := wantBalancer(t, c, spec)
	c.ForgetTokens()
	p := newProvider(t, settings(c))
	pl, err := p.planBalancer(spec)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // the cloud's times have milliseconds
	if _, err := p.makeBalancer(t.Context(), pl, 0); err != nil {
		t.Fatal(err)
	}
	if n := len(c.Balancers()); n != 2 {
		t.Fatalf("%d load balancers", n)
	}
	mustEnsure(t, p, spec)
	if now := wantBalancer(t, c, spec); now.ID != first.ID {
		t.Errorf("%s stayed, not %s", now.ID, first.ID)
	}
}

// TestBalancerServers: instances that are gone or off do not keep others out,
// and more than a call takes are several calls.
func TestBalancerServers(t *testing.T) {
	c := newCloud(t, sim.Options{Lag: time.Nanosecond})
	cfg := settings(c)
	p := newProvider(t, cfg)
	off := mustCreate(t, p, "off", provider.InstanceTypeSpec{}).ID
	if err := p.PowerOff(t.Context(), off); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 45 {
		ids = append(ids, node(c))
	}
	spec := balancerSpec("a1", append([]string{off, "i-2zenosuchinstance"}, ids...)...)
	spec.Backends = append(spec.Backends, provider.LoadBalancerBackend{Name: "no instance"})
	c.ResetCalls()
	mustEnsure(t, p, spec)
	wantBalancer(t, c, balancerSpec("a1", ids...))
	if n := c.Calls()["slb:AddBackendServers"]; n != 4 {
		t.Errorf("%d calls for 45 servers and one that is gone", n)
	}
	if err := p.PowerOn(t.Context(), off); err != nil {
		t.Fatal(err)
	}
	mustEnsure(t, p, spec)
	wantBalancer(t, c, balancerSpec("a1", append(ids, off)...))
	c.Script(cloudsim.Refused("slb:AddBackendServers", 400, "InvalidServer.Odd"))
	gone := balancerSpec("gone", "i-2zenosuchinstance")
	mustEnsure(t, p, gone) // whatever the code is by which the cloud says so
	wantBalancer(t, c, balancerSpec("gone"))
	spec.Backends = []provider.LoadBalancerBackend{{Name: "elsewhere"}}
	if _, err := p.EnsureLoadBalancer(t.Context(), spec); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "elsewhere have no providerID") {
		t.Errorf("Nodes of another cloud: %v", err)
	}
}

// TestBalancerIsNotAskedWithoutEnd: a cloud that goes on showing what was before
// is not asked again and again at once.
func TestBalancerIsNotAskedWithoutEnd(t *testing.T) {
	p := newProvider(t, settings(newCloud(t, sim.Options{})))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	steps := 0
	err := p.until(ctx, func() (bool, error) { steps++; return steps > 1000, nil })
	if !errors.Is(err, provider.ErrUnavailable) || steps > 10 {
		t.Errorf("%d steps, %v", steps, err)
	}
}

// TestBalancerRefusals: what the cloud says no to has a class and a word on what to do.
func TestBalancerRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		options sim.Options
		break_  func(*sim.Cloud)
		class   error
		want    string
	}{
		"quota":  {sim.Options{MaxBalancers: 1}, func(c *sim.Cloud) { c.AddForeignBalancer(nil) }, provider.ErrQuota, "quota centre"},
		"rights": {sim.Options{}, func(c *sim.Cloud) { c.Deny("slb:CreateLoadBalancer") }, provider.ErrPermissionDenied, "must allow slb:CreateLoadBalancer"},
		"busy":   {sim.Options{}, func(c *sim.Cloud) { c.Script(cloudsim.Refused("slb:*", 400, "Throttling.User").Repeated(100)) }, provider.ErrUnavailable, "Throttling.User"},
	} {
		c := newCloud(t, test.options)
		test.break_(c)
		_, err := newProvider(t, settings(c)).EnsureLoadBalancer(t.Context(), balancerSpec("a1"))
		if !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	mustEnsure(t, p, balancerSpec("a1"))
	id := c.Balancers()[0].ID
	c.Protect(id, true)
	if err := p.DeleteLoadBalancer(t.Context(), "a1"); !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), "protected it from deletion") {
		t.Errorf("protected: %v", err)
	}
	c.Protect(id, false)
	if err := p.DeleteLoadBalancer(t.Context(), "a1"); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}
