// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

var balancerChecks = []Check{
	{"balancer", "EnsureLoadBalancer answers where clients connect to; look-ups answer the same, with key and tags.", []need{needsBalancer}, checkBalancer},
	{"balancer-repeated", "Two calls with the same key give the same load balancer.", []need{needsBalancer}, checkBalancerRepeated},
	{"balancer-concurrent", "Two calls with the same key at the same time give the same load balancer.", []need{needsBalancer}, checkBalancerConcurrent},
	{"balancer-reopened", "Two calls with the same key from different processes give the same load balancer.", []need{needsBalancer, needsReopen}, checkBalancerReopened},
	{"balancer-lost-reply", "Two calls with the same key after a lost reply give one load balancer.", []need{needsBalancer}, checkBalancerLostReply},
	{"balancer-ports", "A load balancer listens on the ports that it was told last.", []need{needsBalancer}, checkBalancerPorts},
	{"balancer-backends", "A load balancer leads to the backends that it was told last, which may be none.", []need{needsBalancer}, checkBalancerBackends},
	{"balancer-refused", "A spec that no provider can take is ErrInvalidArgument.", []need{needsBalancer}, checkBalancerRefused},
	{"balancer-absent", "GetLoadBalancer answers ErrNotFound for a key that has none.", []need{needsBalancer}, checkBalancerAbsent},
	{"balancer-list", "ListLoadBalancers returns every load balancer whose tags include all of match, with its key.", []need{needsBalancer}, checkBalancerList},
	{"balancer-list-others", "ListLoadBalancers does not show load balancers of others.", []need{needsBalancer}, checkBalancerListOthers},
	{"balancer-list-empty-match", "ListLoadBalancers with an empty match is ErrInvalidArgument.", []need{needsBalancer}, checkBalancerListEmptyMatch},
	{"balancer-delete", "DeleteLoadBalancer removes a load balancer and everything that belongs to it.", []need{needsBalancer}, checkBalancerDelete},
	{"balancer-delete-instance", "DeleteLoadBalancer removes no instance.", []need{needsBalancer}, checkBalancerDeleteInstance},
	{"balancer-delete-absent", "Deleting a load balancer that does not exist returns nil.", []need{needsBalancer}, checkBalancerDeleteAbsent},
	{"balancer-delete-no-access", "Deleting a load balancer without access to the account is an error and not ErrNotFound.", []need{needsBalancer, needsNoAccess}, checkBalancerDeleteNoAccess},
	{"balancer-after-delete", "A key is free again when its load balancer is deleted.", []need{needsBalancer}, checkBalancerAfterDelete},
}

// balancerKey looks like those of Services: a letter and a UID.
func balancerKey() string { return "a" + newKey()[:31] }

// balancerSpec returns a spec with one port.
func (r *run) balancerSpec() provider.LoadBalancerSpec {
	key := balancerKey()
	tags := maps.Clone(r.owner)
	tags[provider.TagKey] = key
	return provider.LoadBalancerSpec{Key: key, Ports: []provider.LoadBalancerPort{{Port: 80, Target: 30080}}, Tags: tags}
}

// ensure makes the call with the limit of a call. The clean-up deletes the key.
func (r *run) ensure(p provider.Provider, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	return r.ensureWith(ctx, p, spec)
}

func (r *run) ensureWith(ctx context.Context, p provider.Provider, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	r.Helper()
	r.ledger.balances(spec.Key)
	power := capabilityOf[provider.LoadBalancerController](r, p)
	return callWith(ctx, r, "EnsureLoadBalancer", func(ctx context.Context) (*provider.LoadBalancer, error) { return power.EnsureLoadBalancer(ctx, spec) })
}

func (r *run) mustEnsure(spec provider.LoadBalancerSpec) *provider.LoadBalancer {
	r.Helper()
	return r.mustEnsureBy(r.provider, spec)
}

func (r *run) mustEnsureBy(p provider.Provider, spec provider.LoadBalancerSpec) *provider.LoadBalancer {
	r.Helper()
	made, err := r.ensure(p, spec)
	switch {
	case err != nil:
		r.Fatalf("EnsureLoadBalancer: %v", err)
	case made == nil:
		r.Fatalf("EnsureLoadBalancer returned neither a load balancer nor an error")
	case len(made.Addrs) == 0 || slices.ContainsFunc(made.Addrs, func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }):
		r.Fatalf("EnsureLoadBalancer returned the addresses %v", made.Addrs)
	}
	return made
}

func (r *run) getBalancer(key string) (*provider.LoadBalancer, error) {
	r.Helper()
	balancer, err := call(r, "GetLoadBalancer", func(ctx context.Context) (*provider.LoadBalancer, error) {
		return power[provider.LoadBalancerController](r).GetLoadBalancer(ctx, key)
	})
	if err == nil && balancer == nil {
		err = errors.New("GetLoadBalancer returned neither a load balancer nor an error")
	}
	return balancer, err
}

func (r *run) listBalancers(match map[string]string) ([]provider.LoadBalancer, error) {
	r.Helper()
	return call(r, "ListLoadBalancers", func(ctx context.Context) ([]provider.LoadBalancer, error) {
		return power[provider.LoadBalancerController](r).ListLoadBalancers(ctx, match)
	})
}

func (r *run) deleteBalancer(key string) error {
	r.Helper()
	return r.do("DeleteLoadBalancer", func(ctx context.Context) error {
		return power[provider.LoadBalancerController](r).DeleteLoadBalancer(ctx, key)
	})
}

func (r *run) mustDeleteBalancer(key string) {
	r.Helper()
	if err := r.deleteBalancer(key); err != nil {
		r.Fatalf("DeleteLoadBalancer(%q): %v", key, err)
	}
}

func (r *run) checkSameBalancer(first, second *provider.LoadBalancer) {
	r.Helper()
	if !slices.Equal(first.Addrs, second.Addrs) {
		r.Errorf("the same key has a load balancer at %v and then one at %v", first.Addrs, second.Addrs)
	}
}

func checkBalancer(r *run) {
	spec := r.balancerSpec()
	made := r.mustEnsure(spec)
	r.eventually(func() error {
		balancer, err := r.getBalancer(spec.Key)
		switch {
		case err != nil:
			return err
		case balancer.Key != spec.Key || !slices.Equal(balancer.Addrs, made.Addrs) || !provider.HasTags(balancer.Tags, spec.Tags):
			return fmt.Errorf("GetLoadBalancer returned %+v, want key %s, addresses %v, tags %v", balancer, spec.Key, made.Addrs, spec.Tags)
		}
		return nil
	})
}

func checkBalancerRepeated(r *run) {
	spec := r.balancerSpec()
	first := r.mustEnsure(spec)
	for range repetitions - 1 {
		r.checkSameBalancer(first, r.mustEnsure(spec))
	}
}

func checkBalancerConcurrent(r *run) {
	spec := r.balancerSpec()
	r.ledger.balances(spec.Key)
	power := power[provider.LoadBalancerController](r)
	for _, err := range r.atOnce("EnsureLoadBalancer", func(ctx context.Context) error {
		_, err := power.EnsureLoadBalancer(ctx, spec)
		return err
	}) {
		r.Errorf("EnsureLoadBalancer, called %d times at once: %v", racers, err)
	}
	r.checkOneBalancer(spec)
}

// checkOneBalancer waits until the list shows the one of the key, and sees that
// no other appears.
func (r *run) checkOneBalancer(spec provider.LoadBalancerSpec) {
	r.Helper()
	for range quietLists {
		r.eventually(func() error {
			list, err := r.listBalancers(spec.Tags)
			if err == nil && len(list) != 1 {
				err = fmt.Errorf("the key has %d load balancers: %+v", len(list), list)
			}
			return err
		})
	}
}

func checkBalancerReopened(r *run) {
	spec := r.balancerSpec()
	first := r.mustEnsure(spec)
	r.checkSameBalancer(first, r.mustEnsureBy(r.reopen(), spec))
}

// checkBalancerLostReply loses the reply on this side, as checkKeyLostReply does.
func checkBalancerLostReply(r *run) {
	for _, after := range r.instants() {
		spec := r.balancerSpec()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), after)
		_, err := r.ensureWith(ctx, r.provider, spec)
		cancel()
		r.checkRetryable("EnsureLoadBalancer", err)
		r.mustEnsure(spec)
		r.checkOneBalancer(spec)
		r.mustDeleteBalancer(spec.Key)
	}
}

func checkBalancerPorts(r *run) {
	spec := r.balancerSpec()
	for _, ports := range [][]provider.LoadBalancerPort{
		{{Port: 80, Target: 30080}, {Port: 443, Target: 30443}}, {{Port: 443, Target: 30443}}, {{Port: 443, Target: 31443}, {Port: 8080, Target: 30080}},
	} {
		spec.Ports = ports
		r.mustEnsure(spec)
		r.eventually(func() error {
			balancer, err := r.getBalancer(spec.Key)
			if err == nil && balancer.Ports != nil && !slices.Equal(sortedPorts(balancer.Ports), sortedPorts(ports)) {
				err = fmt.Errorf("the load balancer has the ports %v, want %v", balancer.Ports, ports)
			}
			return err
		})
	}
}

func sortedPorts(ports []provider.LoadBalancerPort) []provider.LoadBalancerPort {
	sorted := slices.Clone(ports)
	for i := range sorted {
		if sorted[i].TCP() {
			sorted[i].Protocol = provider.ProtocolTCP
		}
	}
	slices.SortFunc(sorted, func(a, b provider.LoadBalancerPort) int { return cmp.Compare(a.Port, b.Port) })
	return sorted
}

// balancerBackend makes an instance and returns it as a backend.
func (r *run) balancerBackend(name string) provider.LoadBalancerBackend {
	r.Helper()
	made := r.mustCreate(newKey())
	backend := provider.LoadBalancerBackend{Name: name, InstanceID: made.ID}
	if len(made.IPs) > 0 {
		backend.Addr = made.IPs[0]
	}
	return backend
}

func checkBalancerBackends(r *run) {
	spec := r.balancerSpec()
	a, b := r.balancerBackend("a"), r.balancerBackend("b")
	for _, backends := range [][]provider.LoadBalancerBackend{{a}, {a, b}, {b}, nil} {
		spec.Backends = backends
		r.mustEnsure(spec)
		r.eventually(func() error {
			balancer, err := r.getBalancer(spec.Key)
			if err == nil && balancer.Backends != nil && !sameBackends(balancer.Backends, backends) {
				err = fmt.Errorf("the load balancer has the backends %v, want %v", balancer.Backends, backends)
			}
			return err
		})
	}
}

// sameBackends compares what the cloud tells: instance or address.
func sameBackends(reported, wanted []provider.LoadBalancerBackend) bool {
	if len(reported) != len(wanted) {
		return false
	}
	for _, w := range wanted {
		if !slices.ContainsFunc(reported, func(t provider.LoadBalancerBackend) bool {
			return t.InstanceID != "" && t.InstanceID == w.InstanceID || t.InstanceID == "" && t.Addr == w.Addr
		}) {
			return false
		}
	}
	return true
}

func checkBalancerRefused(r *run) {
	for what, change := range map[string]func(*provider.LoadBalancerSpec){
		"an empty key":         func(s *provider.LoadBalancerSpec) { s.Key = "" },
		"a key with a slash":   func(s *provider.LoadBalancerSpec) { s.Key = "../" + s.Key },
		"no port":              func(s *provider.LoadBalancerSpec) { s.Ports = nil },
		"port 0":               func(s *provider.LoadBalancerSpec) { s.Ports[0].Port = 0 },
		"target 0":             func(s *provider.LoadBalancerSpec) { s.Ports[0].Target = 0 },
		"an unknown protocol":  func(s *provider.LoadBalancerSpec) { s.Ports[0].Protocol = "SCTP" },
		"a port that is twice": func(s *provider.LoadBalancerSpec) { s.Ports = append(s.Ports, s.Ports[0]) },
	} {
		spec := r.balancerSpec()
		change(&spec)
		_, err := r.ensure(r.provider, spec)
		r.checkClass("EnsureLoadBalancer with "+what, err, provider.ErrInvalidArgument)
	}
}

func checkBalancerAbsent(r *run) {
	for range repetitions {
		if _, err := r.getBalancer(balancerKey()); !errors.Is(err, provider.ErrNotFound) {
			r.Errorf("GetLoadBalancer of a key that has none: %v", err)
		}
	}
}

func checkBalancerList(r *run) {
	first, second := r.balancerSpec(), r.balancerSpec()
	made := map[string]*provider.LoadBalancer{first.Key: r.mustEnsure(first), second.Key: r.mustEnsure(second)}
	r.eventually(func() error {
		list, err := r.listBalancers(r.owner)
		if err == nil && len(list) != len(made) {
			err = fmt.Errorf("the list shows %d load balancers, want %d", len(list), len(made))
		}
		for _, one := range list {
			if made[one.Key] == nil || !slices.Equal(made[one.Key].Addrs, one.Addrs) {
				err = errors.Join(err, fmt.Errorf("the list shows %+v", one))
			}
		}
		return err
	})
}

func checkBalancerListOthers(r *run) {
	mine, theirs := r.balancerSpec(), r.balancerSpec()
	theirs.Tags[provider.TagNode] += "-other"
	r.mustEnsure(mine)
	r.mustEnsure(theirs)
	r.checkOneBalancer(theirs)
	list, err := r.listBalancers(r.owner)
	if err != nil || slices.ContainsFunc(list, func(b provider.LoadBalancer) bool { return b.Key == theirs.Key }) {
		r.Errorf("the list of one owner shows the load balancer of another: %+v, error %v", list, err)
	}
}

func checkBalancerListEmptyMatch(r *run) {
	for _, match := range []map[string]string{nil, {}} {
		if list, err := r.listBalancers(match); !errors.Is(err, provider.ErrInvalidArgument) {
			r.Errorf("ListLoadBalancers with an empty match returned %d load balancers, error %v", len(list), err)
		}
	}
}

func checkBalancerDelete(r *run) {
	spec := r.balancerSpec()
	r.mustEnsure(spec)
	r.mustDeleteBalancer(spec.Key)
	r.eventually(func() error {
		if _, err := r.getBalancer(spec.Key); !errors.Is(err, provider.ErrNotFound) {
			return fmt.Errorf("GetLoadBalancer still answers after DeleteLoadBalancer: %v", err)
		}
		list, err := r.listBalancers(spec.Tags)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("the list still shows the deleted load balancer %s", spec.Key)
		}
		return err
	})
	r.checkLeaks("after DeleteLoadBalancer")
}

func checkBalancerDeleteInstance(r *run) {
	key := newKey()
	instance := r.mustCreate(key)
	spec := r.balancerSpec()
	backend := provider.LoadBalancerBackend{Name: "a", InstanceID: instance.ID}
	if len(instance.IPs) > 0 {
		backend.Addr = instance.IPs[0]
	}
	spec.Backends = []provider.LoadBalancerBackend{backend}
	r.mustEnsure(spec)
	r.mustDeleteBalancer(spec.Key)
	r.checkStays(key, instance)
}

func checkBalancerDeleteAbsent(r *run) {
	spec := r.balancerSpec()
	for range repetitions {
		r.mustDeleteBalancer(spec.Key)
	}
	r.mustEnsure(spec)
	for range repetitions {
		r.mustDeleteBalancer(spec.Key)
	}
}

func checkBalancerAfterDelete(r *run) {
	spec := r.balancerSpec()
	for range 3 {
		r.mustEnsure(spec)
		r.mustDeleteBalancer(spec.Key)
	}
	r.mustEnsure(spec)
	r.checkOneBalancer(spec)
}
