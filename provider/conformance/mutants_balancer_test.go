// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// aroundEnsure is around for load balancers.
func aroundEnsure(f func(b *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error)) breakage {
	return func(b *broken) {
		ensure := b.ensure
		b.ensure = func(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
			return f(b, ctx, spec, ensure)
		}
	}
}

// changedBalancer breaks what is asked for.
func changedBalancer(change func(b *broken, spec *provider.LoadBalancerSpec)) breakage {
	return aroundEnsure(func(b *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		change(b, &spec)
		return ensure(ctx, spec)
	})
}

// changedBalancers breaks what lists answer.
func changedBalancers(change func([]provider.LoadBalancer) []provider.LoadBalancer) breakage {
	return func(b *broken) {
		list := b.listBalancers
		b.listBalancers = func(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
			found, err := list(ctx, match)
			return change(found), err
		}
	}
}

// aroundBalancerDelete is around for deleting load balancers.
func aroundBalancerDelete(f func(b *broken, ctx context.Context, key string, remove deleter) error) breakage {
	return func(b *broken) {
		remove := b.deleteBalancer
		b.deleteBalancer = func(ctx context.Context, key string) error { return f(b, ctx, key, remove) }
	}
}

var elsewhere = []netip.Addr{netip.MustParseAddr("192.0.2.99")}

var balancerMutants = []mutant{
	{name: "a look-up without tags", breaks: func(b *broken) {
		get := b.getBalancer
		b.getBalancer = func(ctx context.Context, key string) (*provider.LoadBalancer, error) {
			found, err := get(ctx, key)
			if err == nil {
				found.Tags = nil
			}
			return found, err
		}
	}, fails: map[string]string{"balancer": "want key"}},
	{name: "no address yet", breaks: aroundEnsure(func(_ *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		made, err := ensure(ctx, spec)
		if err == nil {
			made.Addrs = nil
		}
		return made, err
	}), fails: map[string]string{"balancer": "returned the addresses []"}, also: []string{
		"balancer-repeated", "balancer-reopened", "balancer-lost-reply", "balancer-ports", "balancer-backends", "balancer-list", "balancer-list-others",
		"balancer-delete", "balancer-delete-instance", "balancer-delete-absent", "balancer-delete-no-access", "balancer-after-delete",
	}},
	{name: "the tenth call makes it again", breaks: aroundEnsure(func(b *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		made, err := ensure(ctx, spec)
		if err == nil && b.count("ensured in a row "+spec.Key, 1) == 10 && b.count("at once "+spec.Key, 0) == 0 {
			made.Addrs = elsewhere
		}
		return made, err
	}), fails: map[string]string{"balancer-repeated": "and then one at [192.0.2.99]"}},
	{name: "one call at a time for a load balancer", breaks: aroundEnsure(func(b *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		defer b.count("ensuring "+spec.Key, -1)
		if b.count("ensuring "+spec.Key, 1) > 1 {
			return nil, failure("the load balancer is configuring", provider.ErrUnavailable)
		}
		<-time.After(busyTime)
		return ensure(ctx, spec)
	}), fails: map[string]string{"balancer-concurrent": "is configuring"}},
	{name: "a load balancer is its process's", breaks: aroundEnsure(func(b *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		if owner := b.marked("balancer of " + spec.Key); owner != "" && owner != b.process {
			return nil, failure("it is somebody else's", provider.ErrAlreadyExists)
		}
		b.mark("balancer of "+spec.Key, b.process)
		return ensure(ctx, spec)
	}), fails: map[string]string{"balancer-reopened": "somebody else's"}},
	{name: "a lost reply makes a second load balancer", breaks: aroundEnsure(func(b *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		if cutShort(ctx) {
			double := spec
			double.Key += "-1"
			if _, err := ensure(context.WithoutCancel(ctx), double); err != nil {
				return nil, err
			}
			return nil, failure("connection reset", provider.ErrUnavailable)
		}
		return ensure(ctx, spec)
	}), fails: map[string]string{"balancer-lost-reply": "has 2 load balancers"}},
	{name: "a load balancer that was cut short is given up", breaks: aroundEnsure(func(_ *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		if cutShort(ctx) {
			return nil, failure("cut short", provider.ErrInvalidArgument)
		}
		return ensure(ctx, spec)
	}), fails: map[string]string{"balancer-lost-reply": "nobody retries"}},
	{name: "ports stay", breaks: changedBalancer(func(b *broken, spec *provider.LoadBalancerSpec) {
		if there, err := b.Cloud.GetLoadBalancer(context.Background(), spec.Key); err == nil {
			for _, port := range there.Ports {
				if !slices.Contains(spec.Ports, port) {
					spec.Ports = append(slices.Clone(spec.Ports), port)
				}
			}
		}
		spec.Ports = slices.CompactFunc(spec.Ports, func(a, b provider.LoadBalancerPort) bool { return a.Port == b.Port && a.Port != 80 })
	}), fails: map[string]string{"balancer-ports": "has the ports"}},
	{name: "backends stay", breaks: changedBalancer(func(b *broken, spec *provider.LoadBalancerSpec) {
		if there, err := b.Cloud.GetLoadBalancer(context.Background(), spec.Key); err == nil {
			for _, backend := range there.Backends {
				if !slices.Contains(spec.Backends, backend) {
					spec.Backends = append(slices.Clone(spec.Backends), backend)
				}
			}
		}
	}), fails: map[string]string{"balancer-backends": "has the backends"}},
	{name: "port 0 is any port", breaks: changedBalancer(func(_ *broken, spec *provider.LoadBalancerSpec) {
		if len(spec.Ports) > 0 && spec.Ports[0].Port == 0 {
			spec.Ports[0].Port = 1
		}
	}), fails: map[string]string{"balancer-refused": "port 0 returned no error"}},
	{name: "specs of another class", breaks: aroundEnsure(func(_ *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		if spec.Key == "" {
			return nil, failure("no name", provider.ErrNotFound)
		}
		return ensure(ctx, spec)
	}), fails: map[string]string{"balancer-refused": "has class"}},
	{name: "what has no load balancer is forbidden", breaks: func(b *broken) {
		aroundEnsure(func(b *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
			b.mark("balanced "+spec.Key, "yes")
			return ensure(ctx, spec)
		})(b)
		get := b.getBalancer
		b.getBalancer = func(ctx context.Context, key string) (*provider.LoadBalancer, error) {
			if b.marked("balanced "+key) == "" {
				return nil, failure("no such name, or no right", provider.ErrPermissionDenied)
			}
			return get(ctx, key)
		}
	}, fails: map[string]string{"balancer-absent": "no right"}},
	{name: "a list without addresses", breaks: changedBalancers(func(list []provider.LoadBalancer) []provider.LoadBalancer {
		for i := range list {
			list[i].Addrs = nil
		}
		return list
	}), fails: map[string]string{"balancer-list": "the list shows {Key"}},
	{name: "the last load balancer of a page", breaks: changedBalancers(func(list []provider.LoadBalancer) []provider.LoadBalancer {
		if len(list) == 2 {
			return list[:1]
		}
		return list
	}), fails: map[string]string{"balancer-list": "shows 1 load balancers, want 2"}},
	{name: "load balancers of all nodes", breaks: func(b *broken) {
		list := b.listBalancers
		b.listBalancers = func(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
			if _, exact := match[provider.TagKey]; !exact && len(match) > 0 {
				match = map[string]string{provider.TagCluster: match[provider.TagCluster]}
			}
			return list(ctx, match)
		}
	}, fails: map[string]string{"balancer-list-others": "of another"}},
	{name: "an empty match is everything's", breaks: func(b *broken) {
		list := b.listBalancers
		b.listBalancers = func(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
			if len(match) == 0 {
				return nil, nil
			}
			return list(ctx, match)
		}
	}, fails: map[string]string{"balancer-list-empty-match": "error <nil>"}},
	{name: "the first deletion of a load balancer does nothing", breaks: aroundBalancerDelete(func(b *broken, ctx context.Context, key string, remove deleter) error {
		if b.letIn() && b.count("balancer deletions "+key, 1) == 1 {
			return nil
		}
		return remove(ctx, key)
	}), fails: map[string]string{"balancer-delete": "still answers"}},
	{name: "backends are deleted with the load balancer", breaks: aroundBalancerDelete(func(b *broken, ctx context.Context, key string, remove deleter) error {
		if there, err := b.Cloud.GetLoadBalancer(ctx, key); err == nil {
			for _, backend := range there.Backends {
				b.Cloud.DeleteInstance(ctx, backend.InstanceID)
			}
		}
		return remove(ctx, key)
	}), fails: map[string]string{"balancer-delete-instance": "does not show"}},
	{name: "nobody looks, so the load balancer is gone", breaks: aroundBalancerDelete(func(_ *broken, ctx context.Context, key string, remove deleter) error {
		return withoutAccess(remove(ctx, key), nil)
	}), fails: map[string]string{"balancer-delete-no-access": "no error"}},
	{name: "a load balancer that never was is an error", breaks: aroundBalancerDelete(func(b *broken, ctx context.Context, key string, remove deleter) error {
		if _, err := b.Cloud.GetLoadBalancer(ctx, key); err != nil && b.count("absent deletions "+key, 1) == 5 {
			return failure("nothing to delete", provider.ErrNotFound)
		}
		return remove(ctx, key)
	}), fails: map[string]string{"balancer-delete-absent": "nothing to delete"}},
	{name: "a key of a load balancer is used up", breaks: all(aroundEnsure(func(b *broken, ctx context.Context, spec provider.LoadBalancerSpec, ensure ensurer) (*provider.LoadBalancer, error) {
		if b.count("balancers deleted "+spec.Key, 0) >= 3 {
			return nil, failure("the token was used", provider.ErrAlreadyExists)
		}
		return ensure(ctx, spec)
	}), aroundBalancerDelete(func(b *broken, ctx context.Context, key string, remove deleter) error {
		if _, err := b.Cloud.GetLoadBalancer(ctx, key); err == nil {
			b.count("balancers deleted "+key, 1)
		}
		return remove(ctx, key)
	})), fails: map[string]string{"balancer-after-delete": "the token was used"}},
}
