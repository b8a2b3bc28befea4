// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

var errDead = errors.New("the process is dead")

// fuse ends a process before or after one of the calls that leave it.
type fuse struct {
	mu   sync.Mutex
	left int // calls; below 0: it does not burn
	// at, if any, is the call at which it burns.
	at   string
	dead bool
	// where it ended by itself.
	where string
	// died, if any, is called at that instant.
	died func()
}

func (f *fuse) step(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dead && (f.left == 0 || f.at == name) {
		f.where = name
		f.end()
	}
	if f.dead {
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, errDead)
	}
	if f.left > 0 {
		f.left--
	}
	return nil
}

func (f *fuse) end() {
	if !f.dead && f.died != nil {
		f.died()
	}
	f.dead = true
}

func (f *fuse) kill() { f.mu.Lock(); f.end(); f.mu.Unlock() }

// light has it burn before or after one of calls, or after some number of any.
func (f *fuse) light(random *rand.Rand, calls ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if random.IntN(3) == 0 {
		f.left = random.IntN(50)
		return
	}
	f.at = []string{"before ", "after "}[random.IntN(2)] + calls[random.IntN(len(calls))]
}

func (f *fuse) burnt() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
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

// conn is a connection to a cloud.
type conn interface {
	provider.Provider
	provider.Lister
	provider.Getter
	provider.ConsoleReader
	provider.PowerController
	provider.InstanceTypeLister
}

// mortalCloud is the cloud as a process with a fuse sees it.
type mortalCloud struct {
	conn
	fuse *fuse
	lag  func()
}

func (c mortalCloud) CreateInstance(ctx context.Context, name, key string, data cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (i *provider.Instance, err error) {
	dead := c.fuse.around("CreateInstance", func() error {
		c.lag()
		i, err = c.conn.CreateInstance(ctx, name, key, data, spec)
		return nil
	})
	if dead != nil {
		return nil, dead
	}
	return i, err
}

func (c mortalCloud) DeleteInstance(ctx context.Context, id string) error {
	return c.fuse.around("DeleteInstance", func() error { c.lag(); return c.conn.DeleteInstance(ctx, id) })
}

func (c mortalCloud) PowerOff(ctx context.Context, id string) error {
	return c.fuse.around("PowerOff", func() error { c.lag(); return c.conn.PowerOff(ctx, id) })
}

func (c mortalCloud) PowerOn(ctx context.Context, id string) error {
	return c.fuse.around("PowerOn", func() error { c.lag(); return c.conn.PowerOn(ctx, id) })
}

func (c mortalCloud) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if err := c.fuse.step("ListInstances"); err != nil {
		return nil, err
	}
	return c.conn.ListInstances(ctx, match)
}

// Teardown leaves the connection: settings that change make no other.
func (mortalCloud) Teardown() error { return nil }

// loop is a controller's queue: what is to be reconciled, and when.
type loop struct {
	reconcile func(context.Context, reconcile.Request) (reconcile.Result, error)
	due       map[reconcile.Request]time.Time
}

func (l *loop) add(namespace, name string, at time.Time) {
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	if was, ok := l.due[request]; !ok || at.Before(was) {
		l.due[request] = at
	}
}

// process is one life of peerpod-ctrl. Watches deliver when [process.deliver] is called;
// until then its cache is behind.
type process struct {
	api     *apiServer
	random  *rand.Rand
	lag     func()
	fuse    *fuse
	conn    conn
	pace    time.Duration
	r       *Reconciler
	pools   *Pools
	sweeper *Sweeper
	queue   queue
	keep    *loop
	vms     *loop
	pool    *loop

	seen     map[string]string // resource versions
	peerPods []v1alpha1.PeerPod
	ofPools  []v1alpha1.PodVMPool
	version  int64 // of the API server's writes
	swept    time.Time
	failures int // sweeps that failed in a row
}

func newProcess(api *apiServer, random *rand.Rand, lag func(), of vms) *process {
	conn, began := of.connect(), time.Now()
	p := &process{api: api, random: random, lag: lag, conn: conn, pace: of.pace, fuse: &fuse{left: -1}, seen: map[string]string{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	o := Options{Namespace: "system", Cluster: "c1", Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), PoolStarting: 3}
	o.complete()
	o.Cloud = cloud.Options{Now: func() time.Time { return began.Add(time.Since(began) * of.pace) }, Load: func(context.Context, plugin.Options) (*plugin.Loaded, error) {
		return &plugin.Loaded{Name: "fake", Carrier: plugin.BuiltIn, Cloud: config.New("fake", func(standConfig) (provider.Provider, error) {
			return mortalCloud{conn, p.fuse, lag}, nil
		})}, nil
	}}
	live := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			return errors.Join(p.fuse.step("read"), c.Get(ctx, key, o, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return errors.Join(p.fuse.step("list"), c.List(ctx, list, options...))
		},
	})
	p.r = newReconciler(p.client(), live, controllers.NewRecorder(&recorder{}, nil), o)
	p.r.waiters.start(p.queue)
	p.sweeper = &Sweeper{Reconciler: p.r}
	p.pools = newPools(p.r)
	p.pools.vms.probe = of.probe
	new := func(r reconcile.Reconciler) *loop { return &loop{r.Reconcile, map[reconcile.Request]time.Time{}} }
	p.keep, p.vms, p.pool = new(p.r), new(p.pools.vms), new(p.pools)
	return p
}

// client reads from the cache and writes to the API server.
func (p *process) client() client.WithWatch {
	write := func(name string, call func() error) error {
		return p.fuse.around(name, func() error {
			p.lag()
			if err := p.api.writable(); err != nil {
				return err
			}
			return call()
		})
	}
	return interceptor.NewClient(p.api, interceptor.Funcs{
		Get: p.get, List: p.list,
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return write("creation", func() error { return c.Create(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return write("update", func() error { return c.Update(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return write("deletion", func() error { return c.Delete(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return write("patch", func() error { return c.Patch(ctx, o, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return write("patch of the status", func() error { return c.SubResource(sub).Patch(ctx, o, patch, options...) })
		},
	})
}

func (p *process) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	absent := apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource).GroupResource(), key.Name)
	switch o := o.(type) {
	case *v1alpha1.PeerPod:
		for i := range p.peerPods {
			if client.ObjectKeyFromObject(&p.peerPods[i]) == key {
				p.peerPods[i].DeepCopyInto(o)
				return nil
			}
		}
		return absent
	case *v1alpha1.PodVMPool:
		for i := range p.ofPools {
			if p.ofPools[i].Name == key.Name {
				p.ofPools[i].DeepCopyInto(o)
				return nil
			}
		}
		return absent
	}
	return c.Get(ctx, key, o, options...)
}

func (p *process) list(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	to, ok := list.(*v1alpha1.PeerPodList)
	if !ok {
		return c.List(ctx, list, options...)
	}
	of := (&client.ListOptions{}).ApplyOptions(options)
	for i := range p.peerPods {
		pp := &p.peerPods[i]
		pod, byPod := "", false
		if of.FieldSelector != nil {
			pod, byPod = of.FieldSelector.RequiresExactMatch(indexPod)
		}
		if (of.Namespace == "" || of.Namespace == pp.Namespace) && (of.LabelSelector == nil || of.LabelSelector.Matches(labels.Set(pp.Labels))) &&
			(!byPod || string(claims.PodUID(pp)) == pod) {
			to.Items = append(to.Items, *pp.DeepCopy())
		}
	}
	return nil
}

// deliver brings the cache up to date and enqueues what has changed.
func (p *process) deliver(ctx context.Context) error {
	version := p.api.writes.Load()
	if version == p.version {
		return nil
	}
	p.version = version
	var peerPods v1alpha1.PeerPodList
	var pools v1alpha1.PodVMPoolList
	if err := errors.Join(p.api.List(ctx, &peerPods), p.api.List(ctx, &pools)); err != nil {
		return err
	}
	p.peerPods, p.ofPools = peerPods.Items, pools.Items
	now, before := time.Now(), p.seen
	p.seen = map[string]string{}
	changed := func(key, version string) bool { p.seen[key] = version; return before[key] != version }
	for i := range p.peerPods {
		pp := &p.peerPods[i]
		member := ""
		if pp.Spec.Pool != nil {
			member = pp.Spec.Pool.Name
		}
		if changed(pp.Namespace+"/"+pp.Name+"/"+member, pp.ResourceVersion) {
			p.event(pp.Namespace, pp.Name, member, now)
		}
	}
	for i := range p.ofPools {
		if changed(p.ofPools[i].Name, p.ofPools[i].ResourceVersion) {
			p.pool.add("", p.ofPools[i].Name, now)
		}
	}
	for key := range before {
		if parts := strings.Split(key, "/"); p.seen[key] == "" && len(parts) == 3 {
			p.event(parts[0], parts[1], parts[2], now)
		}
	}
	return nil
}

func (p *process) event(namespace, name, member string, now time.Time) {
	p.keep.add(namespace, name, now)
	if member != "" {
		p.vms.add(namespace, name, now)
		p.pool.add("", member, now)
	}
}

// work reconciles what is due and sweeps when that is.
func (p *process) work(ctx context.Context) {
	for p.queue.Len() > 0 {
		request, _ := p.queue.Get()
		p.queue.Done(request)
		p.keep.add(request.Namespace, request.Name, time.Now())
	}
	for _, i := range p.random.Perm(3) {
		p.run(ctx, []*loop{p.keep, p.vms, p.pool}[i])
	}
	if time.Since(p.swept)*p.pace >= p.r.options.Period && !p.fuse.burnt() {
		p.failures++
		if p.swept = time.Now(); p.sweeper.Sweep(ctx) == nil {
			p.failures = 0
		}
	}
}

func (p *process) run(ctx context.Context, l *loop) {
	requests := slices.SortedFunc(maps.Keys(l.due), func(a, b reconcile.Request) int { return strings.Compare(a.String(), b.String()) })
	p.random.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	for _, request := range requests {
		if l.due[request].After(time.Now()) || p.fuse.burnt() {
			continue
		}
		delete(l.due, request)
		result, err := l.reconcile(ctx, request)
		switch {
		case err != nil:
			l.add(request.Namespace, request.Name, time.Now().Add(time.Second/p.pace))
		case result.RequeueAfter > 0:
			l.add(request.Namespace, request.Name, time.Now().Add(result.RequeueAfter/p.pace))
		}
	}
}

// next returns when something is due, at most a second from now.
func (p *process) next() time.Time {
	at := time.Now().Add(time.Second)
	for _, l := range []*loop{p.keep, p.vms, p.pool} {
		for _, due := range l.due {
			if due.Before(at) {
				at = due
			}
		}
	}
	return at
}

func (p *process) close() {
	p.fuse.kill()
	p.queue.ShutDown()
	p.r.clouds.Close()
}
