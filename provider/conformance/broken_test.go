// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

// The calls that a broken provider gets wrong.
type (
	creator  func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error)
	deleter  func(ctx context.Context, id string) error
	lister   func(ctx context.Context, match map[string]string) ([]provider.Instance, error)
	getter   func(ctx context.Context, id string) (*provider.Instance, error)
	consoler func(ctx context.Context, id string, tail int64) ([]byte, error)
)

// broken is the fake with some calls replaced.
type broken struct {
	*fake.Cloud
	create             creator
	delete             deleter
	list               lister
	get                getter
	console            consoler
	powerOff, powerOn  deleter
	types              func() ([]provider.InstanceType, error)
	verify, teardown   func() error
	nodeAddress        netip.Addr
	nodeAddressFailure error
}

// breakage makes one process's view of a broken cloud.
type breakage func(*broken)

func breakCloud(cloud *fake.Cloud, breaks breakage) *broken {
	b := &broken{Cloud: cloud, nodeAddress: netip.MustParseAddr("192.0.2.1")}
	b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
		return cloud.CreateInstance(ctx, "pod", key, config, spec)
	}
	b.delete, b.list, b.get, b.console = cloud.DeleteInstance, cloud.ListInstances, cloud.GetInstance, cloud.Console
	b.powerOff, b.powerOn = cloud.PowerOff, cloud.PowerOn
	b.types = func() ([]provider.InstanceType, error) { return cloud.InstanceTypes(context.Background()) }
	b.verify, b.teardown = cloud.ConfigVerifier, cloud.Teardown
	breaks(b)
	return b
}

func (b *broken) CreateInstance(ctx context.Context, _, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	return b.create(ctx, key, config, spec)
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
func (b *broken) ConfigVerifier() error { return b.verify() }
func (b *broken) Teardown() error       { return b.teardown() }
func (b *broken) NodeAddress(context.Context) (netip.Addr, error) {
	return b.nodeAddress, b.nodeAddressFailure
}

// changedInstance breaks what creating answers.
func changedInstance(change func(*provider.Instance)) breakage {
	return func(b *broken) {
		create := b.create
		b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
			instance, err := create(ctx, key, config, spec)
			if err == nil {
				change(instance)
			}
			return instance, err
		}
	}
}

// changedRequest breaks what creating asks for.
func changedRequest(change func(key *string, config *cloudinit.CloudConfigGenerator, spec *provider.InstanceTypeSpec)) breakage {
	return func(b *broken) {
		create := b.create
		b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
			change(&key, &config, &spec)
			return create(ctx, key, config, spec)
		}
	}
}

// changedList breaks every instance a list shows.
func changedList(change func(*provider.Instance)) breakage {
	return func(b *broken) {
		list := b.list
		b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
			instances, err := list(ctx, match)
			for i := range instances {
				change(&instances[i])
			}
			return instances, err
		}
	}
}

// changedError replaces the errors of creating.
func changedError(replace func(error) error) breakage {
	return func(b *broken) {
		create := b.create
		b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
			instance, err := create(ctx, key, config, spec)
			if err != nil {
				return instance, replace(err)
			}
			return instance, nil
		}
	}
}

// lookThenMake finds the instance of a key in a table of the process, and
// makes one under another key if there is none: right unless two calls race.
func lookThenMake(b *broken) {
	var mu sync.Mutex
	made := map[string]*provider.Instance{}
	create := b.create
	b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
		mu.Lock()
		instance := made[key]
		mu.Unlock()
		if instance != nil {
			return instance, nil
		}
		instance, err := create(ctx, key+unique(), config, spec)
		mu.Lock()
		defer mu.Unlock()
		made[key] = instance
		return instance, err
	}
}

// doubleOnTimeout makes a second instance for a call whose reply got lost.
func doubleOnTimeout(b *broken) {
	create := b.create
	b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(soon()) {
			_, err := create(context.WithoutCancel(ctx), key+unique(), config, spec)
			return nil, errors.Join(provider.ErrUnavailable, err)
		}
		return create(ctx, key, config, spec)
	}
	changedList(func(i *provider.Instance) { i.Key = i.Tags[provider.TagKey] })(b)
}

// orphanOnTimeout leaves an instance without tags when the context ends.
func orphanOnTimeout(b *broken) {
	create := b.create
	b.create = func(ctx context.Context, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(soon()) {
			spec.Tags = nil
			_, err := create(context.WithoutCancel(ctx), key+unique(), config, spec)
			return nil, errors.Join(provider.ErrUnavailable, err)
		}
		return create(ctx, key, config, spec)
	}
}

// ownOnly is a process that knows only what it made itself.
func ownOnly(b *broken) {
	var mu sync.Mutex
	own := map[string]bool{}
	changedInstance(func(i *provider.Instance) {
		mu.Lock()
		defer mu.Unlock()
		own[i.ID] = true
	})(b)
	list, remove := b.list, b.delete
	b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
		instances, err := list(ctx, match)
		mu.Lock()
		defer mu.Unlock()
		var known []provider.Instance
		for _, i := range instances {
			if own[i.ID] {
				known = append(known, i)
			}
		}
		return known, err
	}
	b.delete = func(ctx context.Context, id string) error {
		mu.Lock()
		known := own[id]
		mu.Unlock()
		if !known && id != "" {
			return nil
		}
		return remove(ctx, id)
	}
}

// cached lists and looks up what it has shown once for ever.
func cached(b *broken) {
	var mu sync.Mutex
	seen := map[string]provider.Instance{}
	list, get := b.list, b.get
	changedInstance(func(i *provider.Instance) {
		mu.Lock()
		defer mu.Unlock()
		seen[i.ID] = *i
	})(b)
	b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
		_, err := list(ctx, match)
		mu.Lock()
		defer mu.Unlock()
		var all []provider.Instance
		for _, i := range seen {
			all = append(all, i)
		}
		return all, err
	}
	b.get = func(ctx context.Context, id string) (*provider.Instance, error) {
		mu.Lock()
		defer mu.Unlock()
		if i, ok := seen[id]; ok {
			return &i, nil
		}
		return get(ctx, id)
	}
}

// oneAtATime refuses to delete what is being deleted.
func oneAtATime(b *broken) {
	var mu sync.Mutex
	busy := map[string]bool{}
	remove := b.delete
	b.delete = func(ctx context.Context, id string) error {
		mu.Lock()
		taken := busy[id]
		busy[id] = true
		mu.Unlock()
		if taken {
			return errors.New("the instance is being deleted")
		}
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			delete(busy, id)
		}()
		<-timer()
		return remove(ctx, id)
	}
}
