// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"net/netip"
	"sync"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

// request is what CreateInstance is asked for.
type request struct {
	pod, key string
	config   cloudinit.CloudConfigGenerator
	spec     provider.InstanceTypeSpec
}

// The calls that a broken provider gets wrong.
type (
	creator  func(ctx context.Context, q request) (*provider.Instance, error)
	deleter  func(ctx context.Context, id string) error
	lister   func(ctx context.Context, match map[string]string) ([]provider.Instance, error)
	getter   func(ctx context.Context, id string) (*provider.Instance, error)
	consoler func(ctx context.Context, id string, tail int64) ([]byte, error)
	ensurer  func(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error)
)

// world is what all processes of a broken cloud share.
type world struct {
	mu sync.Mutex
	// marks are what a breakage remembers, by name.
	marks map[string]string
	// counts are what it counts.
	counts map[string]int
	// ended is closed when the check is over: calls that hang end then.
	ended chan struct{}
}

func newWorld() *world {
	return &world{marks: map[string]string{}, counts: map[string]int{}, ended: make(chan struct{})}
}

func (w *world) mark(name, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marks[name] = value
}

func (w *world) marked(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.marks[name]
}

// count adds n and returns the sum.
func (w *world) count(name string, n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[name] += n
	return w.counts[name]
}

// broken is one process's view of the fake, with some calls replaced.
type broken struct {
	*fake.Cloud
	*world
	// process tells processes apart.
	process           string
	create            creator
	delete            deleter
	list              lister
	get               getter
	console           consoler
	powerOff, powerOn deleter
	types             func() ([]provider.InstanceType, error)
	verify, teardown  func() error
	// verifying and closing are those with a context.
	verifying, closing func(context.Context) error
	open               func(context.Context) (provider.Provider, error)
	nodeAddress        func() (netip.Addr, error)
	ensure             ensurer
	getBalancer        func(ctx context.Context, key string) (*provider.LoadBalancer, error)
	listBalancers      func(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error)
	deleteBalancer     deleter
	disk               diskCalls
}

// breakage makes one process's view of a broken cloud.
type breakage func(*broken)

func breakCloud(cloud *fake.Cloud, w *world, breaks breakage) *broken {
	b := &broken{Cloud: cloud, world: w, process: unique()}
	b.create = func(ctx context.Context, q request) (*provider.Instance, error) {
		return cloud.CreateInstance(ctx, q.pod, q.key, q.config, q.spec)
	}
	b.delete, b.list, b.get, b.console = cloud.DeleteInstance, cloud.ListInstances, cloud.GetInstance, cloud.Console
	b.powerOff, b.powerOn = cloud.PowerOff, cloud.PowerOn
	b.types = func() ([]provider.InstanceType, error) { return cloud.InstanceTypes(context.Background()) }
	b.verify, b.teardown = cloud.ConfigVerifier, cloud.Teardown
	b.verifying = func(context.Context) error { return b.verify() }
	b.closing = func(context.Context) error { return b.teardown() }
	b.open = func(context.Context) (provider.Provider, error) { return breakCloud(cloud.Reopen(), w, breaks), nil }
	b.nodeAddress = func() (netip.Addr, error) { return netip.MustParseAddr("192.0.2.1"), nil }
	b.ensure, b.getBalancer, b.listBalancers, b.deleteBalancer = cloud.EnsureLoadBalancer, cloud.GetLoadBalancer, cloud.ListLoadBalancers, cloud.DeleteLoadBalancer
	b.disk = soundDisks(cloud)
	breaks(b)
	return b
}

func (b *broken) CreateInstance(ctx context.Context, pod, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	return b.create(ctx, request{pod, key, config, spec})
}
func (b *broken) DeleteInstance(ctx context.Context, id string) error { return b.delete(ctx, id) }
func (b *broken) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	return b.list(ctx, match)
}
func (b *broken) GetInstance(ctx context.Context, id string) (*provider.Instance, error) {
	return b.get(ctx, id)
}
func (b *broken) Console(ctx context.Context, id string, tail int64) ([]byte, error) {
	return b.console(ctx, id, tail)
}
func (b *broken) PowerOff(ctx context.Context, id string) error { return b.powerOff(ctx, id) }
func (b *broken) PowerOn(ctx context.Context, id string) error  { return b.powerOn(ctx, id) }
func (b *broken) InstanceTypes(context.Context) ([]provider.InstanceType, error) {
	return b.types()
}
func (b *broken) ConfigVerifier() error                     { return b.verify() }
func (b *broken) VerifyConfig(ctx context.Context) error    { return b.verifying(ctx) }
func (b *broken) Teardown() error                           { return b.teardown() }
func (b *broken) TeardownContext(ctx context.Context) error { return b.closing(ctx) }
func (b *broken) NodeAddress(context.Context) (netip.Addr, error) {
	return b.nodeAddress()
}

func (b *broken) EnsureLoadBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	return b.ensure(ctx, spec)
}
func (b *broken) GetLoadBalancer(ctx context.Context, key string) (*provider.LoadBalancer, error) {
	return b.getBalancer(ctx, key)
}
func (b *broken) ListLoadBalancers(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
	return b.listBalancers(ctx, match)
}
func (b *broken) DeleteLoadBalancer(ctx context.Context, key string) error {
	return b.deleteBalancer(ctx, key)
}

// around replaces creating by a function of the call and what it did before.
func around(f func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error)) breakage {
	return func(b *broken) {
		create := b.create
		b.create = func(ctx context.Context, q request) (*provider.Instance, error) { return f(b, ctx, q, create) }
	}
}

// aroundDelete is around for deleting.
func aroundDelete(f func(b *broken, ctx context.Context, id string, remove deleter) error) breakage {
	return func(b *broken) {
		remove := b.delete
		b.delete = func(ctx context.Context, id string) error { return f(b, ctx, id, remove) }
	}
}

// aroundList is around for lists.
func aroundList(f func(b *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error)) breakage {
	return func(b *broken) {
		list := b.list
		b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
			return f(b, ctx, match, list)
		}
	}
}

// changedInstance breaks what creating returns.
func changedInstance(change func(*provider.Instance)) breakage {
	return around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		instance, err := create(ctx, q)
		if err == nil {
			change(instance)
		}
		return instance, err
	})
}

// changedRequest breaks what creating asks for.
func changedRequest(change func(*request)) breakage {
	return around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		change(&q)
		return create(ctx, q)
	})
}

// changedError replaces the errors of creating.
func changedError(replace func(request, error) error) breakage {
	return around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		instance, err := create(ctx, q)
		if err != nil {
			return instance, replace(q, err)
		}
		return instance, nil
	})
}

// refused refuses some creations.
func refused(class error, when func(request) bool) breakage {
	return around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if when(q) {
			return nil, failure("refused", class)
		}
		return create(ctx, q)
	})
}

// changedList breaks every instance that a list shows.
func changedList(change func(*broken, *provider.Instance)) breakage {
	return aroundList(func(b *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
		instances, err := list(ctx, match)
		for i := range instances {
			change(b, &instances[i])
		}
		return instances, err
	})
}

// changedGet breaks what look-ups answer.
func changedGet(change func(*provider.Instance)) breakage {
	return func(b *broken) {
		get := b.get
		b.get = func(ctx context.Context, id string) (*provider.Instance, error) {
			instance, err := get(ctx, id)
			if err == nil {
				change(instance)
			}
			return instance, err
		}
	}
}

// changedEverywhere breaks what the provider reports about an instance, always
// in one way.
func changedEverywhere(change func(*provider.Instance)) breakage {
	return all(changedInstance(change), changedGet(change), changedList(func(_ *broken, i *provider.Instance) { change(i) }))
}

// all breaks several things.
func all(breaks ...breakage) breakage {
	return func(b *broken) {
		for _, f := range breaks {
			f(b)
		}
	}
}

// keysByTag returns keys from tags, where keys were changed to break something
// else.
var keysByTag = changedEverywhere(func(i *provider.Instance) { i.Key = i.Tags[provider.TagKey] })

// remembersIDs marks ids that were made as "made" and "made by" a process, and
// those that were deleted as "deleted".
func remembersIDs(b *broken) {
	create, remove := b.create, b.delete
	b.create = func(ctx context.Context, q request) (*provider.Instance, error) {
		instance, err := create(ctx, q)
		if err == nil {
			b.mark("made "+instance.ID, "yes")
			b.mark("known to "+b.process+" "+instance.ID, "yes")
			b.mark("maker of "+instance.ID, b.process)
		}
		return instance, err
	}
	b.delete = func(ctx context.Context, id string) error {
		err := remove(ctx, id)
		if err == nil && b.marked("made "+id) != "" {
			b.mark("deleted "+id, "yes")
		}
		return err
	}
	teardown := b.teardown
	b.teardown = func() error {
		b.mark("closed "+b.process, "yes")
		return teardown()
	}
}

// made and gone tell ids that exist or existed, and those that existed.
func (b *broken) made(id string) bool { return b.marked("made "+id) != "" }
func (b *broken) gone(id string) bool { return b.marked("deleted "+id) != "" }

// mine reports whether this process has made an id, or got it.
func (b *broken) mine(id string) bool { return b.marked("known to "+b.process+" "+id) != "" }

// makerClosed tells ids whose maker has closed.
func (b *broken) makerClosed(id string) bool {
	return b.marked("closed "+b.marked("maker of "+id)) != ""
}

// stopped reports whether an instance is off.
func (b *broken) stopped(id string) bool {
	i, err := b.Cloud.GetInstance(context.Background(), id)
	return err == nil && i.State == provider.StateStopped
}

// letIn reports whether the cloud lets this process in.
func (b *broken) letIn() bool {
	_, err := b.Cloud.InstanceTypes(context.Background())
	return err == nil
}

// hang ends with the check.
func (b *broken) hang() { <-b.ended }
