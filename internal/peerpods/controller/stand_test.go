// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin"
)

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now never returns the same instant twice, as no real clock does to two
// callers one after the other.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// stand is a controller on a cloud and an API in memory.
type stand struct {
	t       testing.TB
	clock   *clock
	cloud   *fake.Cloud
	client  client.Client
	r       *Reconciler
	sweeper *Sweeper
	queue   queue
	events  *recorder
}

type standConfig struct {
	Token config.Secret `env:"FAKE_TOKEN" required:"true" usage:"token"`
}

// newStand wraps the cloud's provider with wrap, if any.
func newStand(t testing.TB, wrap func(*fake.Cloud) provider.Provider) *stand {
	t.Helper()
	clock := &clock{now: time.Now().Truncate(time.Second)}
	cloudProvider, err := fake.New(fake.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	if wrap == nil {
		wrap = func(c *fake.Cloud) provider.Provider { return c }
	}
	scheme := Scheme()
	c := fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.PeerPod{}, &v1alpha1.PodVMPool{}).
		WithIndex(&v1alpha1.PeerPod{}, indexPod, func(o client.Object) []string { return []string{o.(*v1alpha1.PeerPod).Spec.PodUID} }).
		WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			o.SetCreationTimestamp(metav1.NewTime(clock.Now())) // as a server does
			return c.Create(ctx, o, options...)
		}}).Build()
	s := &stand{t: t, clock: clock, cloud: cloudProvider, client: c, events: &recorder{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	o := Options{Namespace: "system", Cluster: "c1", Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registry: prometheus.NewRegistry()}
	o.complete()
	o.Cloud = cloud.Options{Now: clock.Now, ListInterval: time.Nanosecond, Retry: time.Nanosecond,
		Load: func(_ context.Context, p plugin.Options) (*plugin.Loaded, error) {
			if p.Name != "fake" {
				return nil, fmt.Errorf("Unsupported cloud provider: %s: %w", p.Name, provider.ErrNotFound)
			}
			return &plugin.Loaded{Name: "fake", Carrier: plugin.BuiltIn, Cloud: config.New("fake", func(standConfig) (provider.Provider, error) { return wrap(cloudProvider), nil })}, nil
		}}
	s.r = newReconciler(c, c, controllers.NewRecorder(s.events, nil), o)
	s.r.waiters.start(s.queue)
	s.sweeper = &Sweeper{Reconciler: s.r}
	t.Cleanup(func() { s.queue.ShutDown(); s.r.clouds.Close() })
	s.configure(map[string]string{"CLOUD_PROVIDER": "fake", "FAKE_TOKEN": "t"})
	return s
}

func (s *stand) configure(keys map[string]string) error {
	_, err := s.r.clouds.Configure(cloud.NewSettings("the test", keys))
	return err
}

// claim makes a PeerPod as a node does.
func (s *stand) claim(pod, sandbox string) *v1alpha1.PeerPod {
	s.t.Helper()
	pp, err := s.r.claims.Claim(s.t.Context(), claims.Claim{
		Provider: "fake", SandboxID: sandbox, Cluster: "c1", Node: "worker", Namespace: "ns", PodName: pod, PodUID: types.UID("uid-" + pod),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return pp
}

// create makes an instance as a node does.
func (s *stand) create(pod, sandbox string) *provider.Instance { return s.createIn("c1", pod, sandbox) }

func (s *stand) createIn(cluster, pod, sandbox string) *provider.Instance {
	s.t.Helper()
	tags := map[string]string{provider.TagCluster: cluster, provider.TagKey: sandbox, provider.TagPod: pod, provider.TagNamespace: "ns"}
	i, err := s.cloud.CreateInstance(s.t.Context(), pod, sandbox, noUserData{}, provider.InstanceTypeSpec{Tags: tags})
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

type noUserData struct{}

func (noUserData) Generate() (string, error) { return "", nil }

var _ cloudinit.CloudConfigGenerator = noUserData{}

// run makes a claim, its instance and the note of it.
func (s *stand) run(pod, sandbox string) (*v1alpha1.PeerPod, *provider.Instance) {
	s.t.Helper()
	pp, i := s.claim(pod, sandbox), s.create(pod, sandbox)
	return s.update(pp, claims.Created(describe(i)), claims.Ready), i
}

func (s *stand) update(pp *v1alpha1.PeerPod, changes ...claims.Change) *v1alpha1.PeerPod {
	s.t.Helper()
	now, err := s.r.claims.Update(s.t.Context(), pp, changes...)
	if err != nil {
		s.t.Fatal(err)
	}
	return now
}

func (s *stand) delete(pp *v1alpha1.PeerPod) {
	s.t.Helper()
	if err := s.client.Delete(s.t.Context(), pp); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) get(pp *v1alpha1.PeerPod) (*v1alpha1.PeerPod, error) {
	now := &v1alpha1.PeerPod{}
	return now, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(pp), now)
}

func (s *stand) reconcile(pp *v1alpha1.PeerPod) (reconcile.Result, error) {
	return s.r.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pp)})
}

// settle reconciles what is queued until the PeerPod is gone or nothing is
// queued for it any more.
func (s *stand) settle(pp *v1alpha1.PeerPod) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		if _, err := s.reconcile(pp); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.get(pp); client.IgnoreNotFound(err) == nil && err != nil {
			return
		}
		s.awaitQueued(deadline)
	}
	s.t.Fatal("the PeerPod stays")
}

// awaitQueued waits for the wake-up after a list, and takes it.
func (s *stand) awaitQueued(deadline time.Time) {
	s.t.Helper()
	for s.queue.Len() == 0 {
		if time.Now().After(deadline) {
			s.t.Fatal("nothing is queued")
		}
		time.Sleep(time.Millisecond) // a queue cannot be waited for with a deadline
	}
	request, _ := s.queue.Get()
	s.queue.Done(request)
}

func (s *stand) gone(pp *v1alpha1.PeerPod) {
	s.t.Helper()
	if now, err := s.get(pp); client.IgnoreNotFound(err) != nil || err == nil {
		s.t.Errorf("PeerPod %s is still there: %v, %+v", pp.Name, err, now.Status)
	}
}

// sweep moves the clock on and sweeps.
func (s *stand) sweep(after time.Duration) {
	s.t.Helper()
	s.clock.advance(after)
	if err := s.sweeper.Sweep(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// instances returns the ids of the instances that exist, by id.
func (s *stand) instances() map[string]bool {
	s.t.Helper()
	left, err := s.cloud.Leaks()
	if err != nil {
		s.t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, r := range left {
		ids[r.Instance] = true
	}
	return ids
}

func (s *stand) wantInstances(want ...*provider.Instance) {
	s.t.Helper()
	ids := map[string]bool{}
	for _, i := range want {
		ids[i.ID] = true
	}
	if got := s.instances(); !maps.Equal(got, ids) {
		s.t.Errorf("instances %v, want %v", got, ids)
	}
}

// recorder keeps Events.
type recorder struct {
	mu   sync.Mutex
	list []string
}

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	about := regarding.(*corev1.ObjectReference)
	r.list = append(r.list, about.Kind+"/"+about.Name+" "+kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

func (r *recorder) want(t testing.TB, parts ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.list {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(e, part)
		}
		if all {
			return
		}
	}
	t.Errorf("no event with %q in:\n%s", parts, strings.Join(r.list, "\n"))
}
