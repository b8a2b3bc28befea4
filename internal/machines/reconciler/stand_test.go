// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

const (
	namespace     = "ns"
	clusterName   = "c1"
	coreFinalizer = "core"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, infrav1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

var scheme = newScheme()

// world is an API server, in memory, with what Cluster API's core does in it.
type world struct {
	t      testing.TB
	api    client.Client
	serial int
}

func newWorld(t testing.TB) *world {
	return &world{t: t, api: fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(
		&clusterv1.Cluster{}, &clusterv1.Machine{}, &infrav1.OutriggerCluster{}, &infrav1.OutriggerMachine{}, &infrav1.OutriggerMachineTemplate{}).Build()}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// create makes an object with a UID, as a server does.
func (w *world) create(o client.Object) {
	w.t.Helper()
	w.serial++
	o.SetNamespace(namespace)
	o.SetUID(types.UID(fmt.Sprintf("%p-%s-%d", w, o.GetName(), w.serial))[2:])
	o.SetResourceVersion("")
	w.must(w.api.Create(context.Background(), o))
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}}
}

func infraRef(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: kind, Name: name}
}

// addCluster makes a Cluster and its infrastructure.
func (w *world) addCluster() {
	w.t.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, Finalizers: []string{coreFinalizer}}}
	c.Spec.InfrastructureRef = infraRef("OutriggerCluster", clusterName)
	w.create(c)
	i := &infrav1.OutriggerCluster{ObjectMeta: meta(clusterName)}
	i.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}
	w.create(i)
}

// addMachine makes a Machine and its infrastructure, without bootstrap data.
func (w *world) addMachine(name string) {
	w.t.Helper()
	m := &clusterv1.Machine{ObjectMeta: meta(name)}
	m.Finalizers = []string{coreFinalizer}
	m.Spec.ClusterName, m.Spec.InfrastructureRef = clusterName, infraRef("OutriggerMachine", name)
	w.create(m)
	w.create(&infrav1.OutriggerMachine{ObjectMeta: meta(name)})
}

// bootstrap gives a machine its bootstrap data.
func (w *world) bootstrap(name string) {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: meta(name), Data: map[string][]byte{"value": []byte("#cloud-config\n")}}
	if _, there := get(w, &corev1.Secret{}, name); !there {
		w.create(s)
	}
	w.changeMachine(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &s.Name })
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func get[T client.Object](w *world, o T, name string) (T, bool) {
	w.t.Helper()
	err := w.api.Get(context.Background(), key(name), o)
	w.must(client.IgnoreNotFound(err))
	return o, err == nil
}

func (w *world) cluster() (*clusterv1.Cluster, bool) {
	return get(w, &clusterv1.Cluster{}, clusterName)
}

func (w *world) infraCluster() (*infrav1.OutriggerCluster, bool) {
	return get(w, &infrav1.OutriggerCluster{}, clusterName)
}

func (w *world) infra(name string) (*infrav1.OutriggerMachine, bool) {
	return get(w, &infrav1.OutriggerMachine{}, name)
}

func (w *world) changeMachine(name string, change func(*clusterv1.Machine)) {
	w.t.Helper()
	if m, ok := get(w, &clusterv1.Machine{}, name); ok {
		change(m)
		w.must(w.api.Update(context.Background(), m))
	}
}

func (w *world) changeInfra(name string, change func(*infrav1.OutriggerMachine)) {
	w.t.Helper()
	if m, ok := w.infra(name); ok {
		change(m)
		w.must(w.api.Update(context.Background(), m))
	}
}

func (w *world) pause(paused bool) {
	w.t.Helper()
	if c, ok := w.cluster(); ok {
		c.Spec.Paused = &paused
		w.must(w.api.Update(context.Background(), c))
	}
}

func (w *world) delete(o client.Object, name string) {
	w.t.Helper()
	o.SetNamespace(namespace)
	o.SetName(name)
	w.must(client.IgnoreNotFound(w.api.Delete(context.Background(), o)))
}

func (w *world) infras() []infrav1.OutriggerMachine {
	w.t.Helper()
	var list infrav1.OutriggerMachineList
	w.must(w.api.List(context.Background(), &list))
	return list.Items
}

func (w *world) machines() []clusterv1.Machine {
	w.t.Helper()
	var list clusterv1.MachineList
	w.must(w.api.List(context.Background(), &list))
	return list.Items
}

// core does once what Cluster API's core does.
func (w *world) core() {
	w.t.Helper()
	cluster, ok := w.cluster()
	if ok {
		w.coreCluster(cluster)
	}
	for _, m := range w.machines() {
		w.coreMachine(cluster, &m)
	}
}

func (w *world) own(owner, o client.Object) {
	w.t.Helper()
	refs := len(o.GetOwnerReferences())
	w.must(controllerutil.SetOwnerReference(owner, o, scheme))
	if len(o.GetOwnerReferences()) != refs {
		w.must(w.api.Update(context.Background(), o))
	}
}

func (w *world) coreCluster(cluster *clusterv1.Cluster) {
	w.t.Helper()
	ctx := context.Background()
	paused := cluster.Spec.Paused != nil && *cluster.Spec.Paused
	infra, ok := w.infraCluster()
	switch {
	case paused:
	case !cluster.DeletionTimestamp.IsZero():
		for _, m := range w.machines() {
			w.delete(&clusterv1.Machine{}, m.Name)
		}
		if len(w.machines()) == 0 && ok {
			w.delete(&infrav1.OutriggerCluster{}, clusterName)
		} else if !ok && len(w.machines()) == 0 {
			controllerutil.RemoveFinalizer(cluster, coreFinalizer)
			w.must(w.api.Update(ctx, cluster))
		}
	case ok:
		w.own(cluster, infra)
		if p := infra.Status.Initialization.Provisioned; p != nil && *p {
			cluster.Status.Initialization.InfrastructureProvisioned = p
			w.must(w.api.Status().Update(ctx, cluster))
		}
	}
}

func (w *world) coreMachine(cluster *clusterv1.Cluster, m *clusterv1.Machine) {
	w.t.Helper()
	infra, ok := w.infra(m.Name)
	switch {
	case cluster.Spec.Paused != nil && *cluster.Spec.Paused:
	case !m.DeletionTimestamp.IsZero() && ok:
		w.delete(infra, infra.Name)
	case !m.DeletionTimestamp.IsZero():
		controllerutil.RemoveFinalizer(m, coreFinalizer)
		w.must(w.api.Update(context.Background(), m))
	case ok:
		w.own(m, infra)
	}
}

// manager is one process of ours.
type manager struct {
	backend  *outrigger.Backend
	clusterR *reconciler.ClusterReconciler
	machineR *reconciler.MachineReconciler
	// objects sees what is written and may fail it.
	objects client.Client
}

type managerOptions struct {
	provider provider.Provider
	objects  client.Client
	domains  map[string]provider.Provider
	settle   time.Duration
	interval time.Duration
	filter   string
	wake     *reconciler.Enqueuer
	now      func() time.Time
	elapsed  func() time.Duration
	// stale, if any, fills in an object as a cache that is behind has it.
	stale func(client.Object) bool
	// hideMachines says that a cache does not show machines yet.
	hideMachines func() bool
}

// behind returns what a cache that is behind shows.
func (o managerOptions) behind(api client.Client) client.Client {
	return interceptor.NewClient(api.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, into client.Object, opts ...client.GetOption) error {
			if o.stale != nil && o.stale(into) {
				return nil
			}
			return c.Get(ctx, key, into, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, machines := list.(*infrav1.OutriggerMachineList); machines && o.hideMachines != nil && o.hideMachines() {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
}

func newManager(t testing.TB, w *world, o managerOptions) *manager {
	t.Helper()
	if o.objects == nil {
		o.objects = o.behind(w.api)
	}
	if o.settle == 0 {
		o.settle = time.Nanosecond
	}
	b, err := outrigger.New(outrigger.Options{Name: "fake", Provider: o.provider, Domains: o.domains, Settle: o.settle, Interval: o.interval, Enqueuer: o.wake, Now: o.now, Elapsed: o.elapsed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	base := reconciler.Base{Client: o.objects, Filter: o.filter, Poll: time.Second, DeletePoll: time.Millisecond, Now: o.now}
	m := &manager{backend: b, objects: o.objects}
	m.clusterR = &reconciler.ClusterReconciler{
		Base: base, Backend: b, Finalizer: infrav1.OutriggerClusterFinalizer, Live: w.api,
		New:         func() reconciler.InfraCluster { return &infrav1.OutriggerCluster{} },
		NewMachines: func() client.ObjectList { return &infrav1.OutriggerMachineList{} },
		NewList:     func() client.ObjectList { return &infrav1.OutriggerClusterList{} },
	}
	m.machineR = &reconciler.MachineReconciler{
		Base: base, Backend: b, Finalizer: infrav1.OutriggerMachineFinalizer, Live: w.api,
		New:         func() reconciler.InfraMachine { return &infrav1.OutriggerMachine{} },
		NewCluster:  func() reconciler.InfraCluster { return &infrav1.OutriggerCluster{} },
		NewList:     func() client.ObjectList { return &infrav1.OutriggerMachineList{} },
		ClusterKind: infrav1.GroupVersion.WithKind("OutriggerCluster").GroupKind(),
	}
	m.clusterR.Complete()
	m.machineR.Complete()
	return m
}

func (m *manager) reconcileCluster(ctx context.Context) (reconcile.Result, error) {
	return m.clusterR.Reconcile(ctx, reconcile.Request{NamespacedName: key(clusterName)})
}

func (m *manager) reconcileMachine(ctx context.Context, name string) (reconcile.Result, error) {
	return m.machineR.Reconcile(ctx, reconcile.Request{NamespacedName: key(name)})
}

// stand is one manager on one cloud and one API server.
type stand struct {
	*world
	*manager
	t     testing.TB
	cloud *fake.Cloud
	clock *clock
}

// clock is a clock that a test moves.
type clock struct {
	mu   sync.Mutex
	skew time.Duration
	// jumped is how far the clock is from the time that has passed.
	jumped time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.skew + c.jumped)
}

var epoch = time.Now()

// elapsed is the time that has passed, whatever the clock says.
func (c *clock) elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(epoch) + c.skew
}

// jump sets the clock ahead, or back, while no time passes.
func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jumped += d
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += d
}

func newStand(t testing.TB, change ...func(*managerOptions)) *stand {
	t.Helper()
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, c := newWorld(t), &clock{}
	o := managerOptions{provider: cloud, now: c.now, elapsed: c.elapsed}
	for _, f := range change {
		f(&o)
	}
	if o.now == nil {
		o.now = time.Now
	}
	return &stand{world: w, manager: newManager(t, w, o), t: t, cloud: cloud, clock: c}
}

// until does what core and the manager do until ok says so.
func (s *stand) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.core()
		s.reconcileCluster(s.t.Context())
		for _, m := range s.infras() {
			s.reconcileMachine(s.t.Context(), m.Name)
		}
		if ok() {
			return
		}
	}
	for _, m := range s.infras() {
		s.t.Logf("%s: %+v", m.Name, m)
	}
	s.t.Fatalf("not in a minute: %s", what)
}

func (s *stand) provisioned(name string) func() bool {
	return func() bool {
		m, ok := s.infra(name)
		return ok && m.Status.Initialization.Provisioned != nil && m.Status.Ready && m.Spec.ProviderID != ""
	}
}

func (s *stand) gone(name string) func() bool {
	return func() bool { _, ok := s.infra(name); return !ok }
}

// run makes a cluster with one machine and waits for it.
func (s *stand) run(name string) *infrav1.OutriggerMachine {
	s.t.Helper()
	s.addCluster()
	s.addMachine(name)
	s.bootstrap(name)
	s.until(name+" is provisioned", s.provisioned(name))
	m, _ := s.infra(name)
	return m
}

// instances returns the names of the machines that have an instance, each as
// often as it has one.
func instances(t testing.TB, cloud *fake.Cloud) (names []string) {
	t.Helper()
	left, err := cloud.Leaks()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range left {
		if r.Kind == fake.KindInstance {
			names = append(names, r.Tags[provider.TagPod])
		}
	}
	return names
}

func (s *stand) wantInstances(want int) {
	s.t.Helper()
	if got := instances(s.t, s.cloud); len(got) != want {
		s.t.Errorf("instances of machines %q, want %d", got, want)
	}
}

// wantCondition looks at a condition of an object.
func wantCondition(t testing.TB, o interface{ ContractStatus() *infrav1.Status }, kind string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	for _, c := range o.ContractStatus().Conditions {
		if c.Type == kind {
			if c.Status != status || reason != "" && c.Reason != reason {
				t.Errorf("%s is %s, %s: %s; want %s, %s", kind, c.Status, c.Reason, c.Message, status, reason)
			}
			return
		}
	}
	t.Errorf("there is no condition %s", kind)
}
