// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

var errDead = errors.New("the process is dead")

// fuse ends a process at one of its steps: before or after a write to the API
// server, before or after a call to the cloud.
type fuse struct {
	mu    sync.Mutex
	left  int // steps; below 0: it does not burn
	dead  bool
	where string
	steps map[string]int
	// at, if any, is the step at which it ends when it comes there for the nth
	// time.
	at  string
	nth int
}

func (f *fuse) step(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, errDead)
	}
	if f.steps == nil {
		f.steps = map[string]int{}
	}
	f.steps[name]++
	if f.left == 0 || f.at == name && f.steps[name] == f.nth {
		f.dead, f.where = true, name
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, errDead)
	}
	if f.left > 0 {
		f.left--
	}
	return nil
}

// light has the process end after so many steps.
func (f *fuse) light(steps int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = steps
}

func (f *fuse) kill() { f.mu.Lock(); f.dead = true; f.mu.Unlock() }

func (f *fuse) burnt() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.where, f.dead
}

// around does a call between two steps.
func (f *fuse) around(name string, call func() error) error {
	if err := f.step("before " + name); err != nil {
		return err
	}
	err := call()
	if dead := f.step("after " + name); dead != nil {
		return dead
	}
	return err
}

// mortalCloud is the cloud as a process with a fuse sees it.
type mortalCloud struct {
	*fake.Cloud
	fuse *fuse
}

func (c mortalCloud) CreateInstance(ctx context.Context, name, key string, data cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (i *provider.Instance, err error) {
	dead := c.fuse.around("CreateInstance", func() error {
		i, err = c.Cloud.CreateInstance(ctx, name, key, data, spec)
		return nil
	})
	if dead != nil {
		return nil, dead
	}
	return i, err
}

func (c mortalCloud) DeleteInstance(ctx context.Context, id string) error {
	return c.fuse.around("DeleteInstance", func() error { return c.Cloud.DeleteInstance(ctx, id) })
}

func (c mortalCloud) ListInstances(ctx context.Context, match map[string]string) (l []provider.Instance, err error) {
	if err := c.fuse.step("before ListInstances"); err != nil {
		return nil, err
	}
	return c.Cloud.ListInstances(ctx, match)
}

// mortalClient is the API server as a process with a fuse sees it: what it
// reads comes from a cache that may be behind, but never goes back.
type mortalClient struct {
	client.Client
	fuse   *fuse
	random *rand.Rand // of the one goroutine that reconciles
	// behind is how many of ten reads are answered from the cache as it is.
	behind int
	cache  map[string]client.Object // nil: the object was not there
}

func newMortalClient(api client.Client, f *fuse, random *rand.Rand, cache map[string]client.Object) *mortalClient {
	m := &mortalClient{fuse: f, random: random, cache: cache}
	m.Client = interceptor.NewClient(api.(client.WithWatch), interceptor.Funcs{
		Get: m.get,
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return f.around("write of the object", func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return f.around("write of the status", func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	return m
}

func (m *mortalClient) get(ctx context.Context, c client.WithWatch, key types.NamespacedName, o client.Object, opts ...client.GetOption) error {
	if _, dead := m.fuse.burnt(); dead {
		return errDead
	}
	at := fmt.Sprintf("%T %s", o, key)
	if cached, ok := m.cache[at]; ok && m.random.IntN(10) < m.behind {
		if cached == nil {
			return apierrors.NewNotFound(gr, key.Name)
		}
		return scheme.Convert(cached.DeepCopyObject(), o, nil)
	}
	err := c.Get(ctx, key, o, opts...)
	switch {
	case err == nil:
		m.cache[at] = o.DeepCopyObject().(client.Object)
	case apierrors.IsNotFound(err):
		m.cache[at] = nil
	}
	return err
}
