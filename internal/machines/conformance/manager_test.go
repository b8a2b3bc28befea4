// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/conformance"
	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

// bootTime is how long making an instance takes, of a bubble's time.
const bootTime = 50 * time.Millisecond

// world is an API server with a cloud and a manager that works in both.
type world struct {
	t       testing.TB
	memory  *memory
	cloud   *fake.Cloud
	breaks  breakage
	ctx     context.Context
	cancel  context.CancelFunc
	release fs.FS
	process *process
	all     []*process

	mu   sync.Mutex
	uids map[string]types.UID // the first of each name
}

func newWorld(t testing.TB, breaks breakage) *world {
	w := &world{t: t, breaks: breaks, uids: map[string]types.UID{}}
	cloud, err := fake.New(fake.Options{Boot: func(ctx context.Context, _ fake.BootRequest) ([]netip.Addr, error) {
		select {
		case <-time.After(bootTime):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.cloud = cloud
	w.ctx, w.cancel = context.WithCancel(context.Background())
	b := newBroken(w)
	crds := make([]*unstructured.Unstructured, 0, 4)
	for _, crd := range definitions() {
		crd = crd.DeepCopy()
		b.define(crd)
		crds = append(crds, crd)
	}
	role := permissions()
	b.define(role)
	w.release = releaseOf(b, definitions())
	w.memory = newMemory(append(crds, role), b.admit, b.older)
	w.start()
	return w
}

// process is one manager.
type process struct {
	world *world
	*broken
	dead     atomic.Bool
	backend  *outrigger.Backend
	clusters *reconciler.ClusterReconciler
	machines *reconciler.MachineReconciler
	pools    *reconciler.PoolReconciler
	queue    workqueue.TypedRateLimitingInterface[request]
	work     sync.WaitGroup
}

var errDead = errors.New("the manager was killed")

func (w *world) start() {
	p := &process{world: w, broken: newBroken(w)}
	objects := p.client()
	wake := &reconciler.Enqueuer{}
	var cloud provider.Provider = &brokenCloud{Cloud: w.cloud, process: p}
	domains := map[string]provider.Provider{"a": cloud, "b": cloud}
	var err error
	p.backend, err = outrigger.New(outrigger.Options{Name: "fake", Provider: cloud, Domains: domains, Settle: 4 * bootTime, Interval: 2 * bootTime, Enqueuer: wake})
	if err != nil {
		w.t.Fatal(err)
	}
	base := reconciler.Base{Client: objects, Poll: time.Second, DeletePoll: bootTime, Filter: watchFilter}
	p.clusters = &reconciler.ClusterReconciler{
		Base: base, Backend: p.backend, Finalizer: infrav1.OutriggerClusterFinalizer,
		New:         func() reconciler.InfraCluster { return &infrav1.OutriggerCluster{} },
		NewMachines: func() client.ObjectList { return &infrav1.OutriggerMachineList{} },
	}
	p.machines = &reconciler.MachineReconciler{
		Base: base, Backend: p.backend, Finalizer: infrav1.OutriggerMachineFinalizer, Live: objects,
		New:         func() reconciler.InfraMachine { return &infrav1.OutriggerMachine{} },
		NewCluster:  func() reconciler.InfraCluster { return &infrav1.OutriggerCluster{} },
		ClusterKind: infrav1.GroupVersion.WithKind("OutriggerCluster").GroupKind(),
	}
	// There is no pool of machines of that kind, but one can be made of them.
	p.pools = &reconciler.PoolReconciler{
		Base: base, Live: objects, Finalizer: infrav1.DockerMachinePoolFinalizer, MachineKind: infrav1.GroupVersion.WithKind("OutriggerMachine"),
		New:         func() reconciler.InfraPool { return &infrav1.DockerMachinePool{} },
		NewMachine:  func(reconciler.InfraPool) reconciler.InfraMachine { return &infrav1.OutriggerMachine{} },
		NewMachines: func() client.ObjectList { return &infrav1.OutriggerMachineList{} },
	}
	p.pools.Complete()
	p.clusters.Complete()
	p.machines.Complete()
	p.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[request](5*time.Millisecond, time.Second))
	w.process, w.all = p, append(w.all, p)
	w.memory.subscribe(p.queue.Add)
	p.work.Go(p.run)
}

func (p *process) run() {
	for {
		r, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		result, err := p.reconcile(r)
		switch {
		case err != nil:
			p.queue.AddRateLimited(r)
		default:
			p.queue.Forget(r)
			// There is no enqueuer here: what goes on in the background is looked at
			// soon.
			p.queue.AddAfter(r, p.pause(result))
		}
		p.queue.Done(r)
		time.Sleep(time.Millisecond) // so that the bubble's time passes also when a mutant writes for ever
	}
}

func (p *process) pause(result reconcile.Result) time.Duration {
	if result.RequeueAfter > 0 {
		return result.RequeueAfter
	}
	return bootTime
}

func (p *process) reconcile(r request) (reconcile.Result, error) {
	next := func() (reconcile.Result, error) {
		switch r.kind {
		case "OutriggerCluster":
			return p.clusters.Reconcile(p.world.ctx, reconcile.Request{NamespacedName: r.NamespacedName})
		case "DockerMachinePool":
			return p.pools.Reconcile(p.world.ctx, reconcile.Request{NamespacedName: r.NamespacedName})
		}
		return p.machines.Reconcile(p.world.ctx, reconcile.Request{NamespacedName: r.NamespacedName})
	}
	return p.around(p.world.ctx, r, next)
}

// kill ends the manager: nothing that it does from now on reaches anything,
// and what it asked the cloud for goes on without it.
func (p *process) kill() {
	p.dead.Store(true)
	p.queue.ShutDown()
}

func (w *world) restart(context.Context) error {
	w.process.kill()
	w.start()
	return nil
}

// end waits until all has ended that the world began.
func (w *world) end() {
	w.cancel()
	for _, p := range w.all {
		p.kill()
		p.work.Wait()
		p.backend.Close()
	}
}

func (w *world) inventory(context.Context) ([]string, error) {
	left, err := w.cloud.Leaks()
	var ids []string
	for _, l := range left {
		if l.Kind == fake.KindInstance {
			ids = append(ids, l.ID)
		}
	}
	return ids, err
}

func (w *world) subject() conformance.Subject {
	return conformance.Subject{
		Client: w.memory, Objects: objects(), Inventory: w.inventory, Restart: w.restart, WatchFilter: watchFilter, Release: w.release,
		Limits: conformance.Limits{Provision: 5 * time.Second, Delete: 5 * time.Second, Quiet: 400 * time.Millisecond, Poll: 40 * time.Millisecond},
	}
}

// client is how a manager reads and writes, with what is broken of it.
func (p *process) client() client.Client {
	return interceptor.NewClient(p.world.memory, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if p.dead.Load() {
				return errDead
			}
			return p.got(key, o, c.Get(ctx, key, o, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if p.dead.Load() {
				return errDead
			}
			if err := c.List(ctx, list, options...); err != nil {
				return err
			}
			return meta.EachListItem(list, func(o runtime.Object) error {
				object := o.(client.Object)
				return p.got(client.ObjectKeyFromObject(object), object, nil)
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			changed, err := p.changed(o, false, patch)
			if err != nil || changed == nil {
				return err
			}
			return c.Patch(ctx, o, changed, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			changed, err := p.changed(o, true, patch)
			if err != nil || changed == nil {
				return err
			}
			return c.SubResource(name).Patch(ctx, o, changed, options...)
		},
	})
}

// changed returns what is written instead; nil: nothing.
func (p *process) changed(o client.Object, status bool, patch client.Patch) (client.Patch, error) {
	if p.dead.Load() {
		return nil, errDead
	}
	data, err := patch.Data(o)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	if !p.write(o, status, fields) {
		return nil, nil
	}
	data, err = json.Marshal(fields)
	return client.RawPatch(patch.Type(), data), err
}

// brokenCloud is the cloud as a manager sees it.
type brokenCloud struct {
	*fake.Cloud
	process *process
}

func (c *brokenCloud) CreateInstance(ctx context.Context, pod, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	if c.process.dead.Load() {
		return nil, errDead
	}
	// The cloud goes on with what it was asked for when whoever asked is gone.
	if c.process.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	return c.process.create(ctx, pod, key, config, spec)
}

func (c *brokenCloud) DeleteInstance(ctx context.Context, id string) error {
	if c.process.dead.Load() {
		return errDead
	}
	return c.process.remove(ctx, id)
}

func (c *brokenCloud) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if c.process.dead.Load() {
		return nil, errDead
	}
	return c.process.list(ctx, match)
}
