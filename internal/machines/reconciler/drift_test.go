// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

func idOf(m *infrav1.OutriggerMachine) string {
	return strings.TrimPrefix(m.Spec.ProviderID, "outrigger://fake/")
}

// TestDeadInstanceIsSeen: a machine stays provisioned, and is not Ready.
func TestDeadInstanceIsSeen(t *testing.T) {
	s := newStand(t)
	m := s.run("m1")
	s.must(s.cloud.PowerOff(t.Context(), idOf(m)))
	s.clock.advance(time.Hour)
	s.until("it is seen to be stopped", func() bool { return has(s, "m1", reconciler.ReasonInstanceStopped) })
	s.must(s.cloud.PowerOn(t.Context(), idOf(m)))
	s.clock.advance(time.Hour)
	s.until("it is seen to run", func() bool {
		m, _ := s.infra("m1")
		return condition(m, clusterv1.ReadyCondition).Status == metav1.ConditionTrue
	})
	s.must(s.cloud.DeleteInstance(t.Context(), idOf(m)))
	s.clock.advance(time.Hour)
	s.until("it is seen to be gone", func() bool { return has(s, "m1", reconciler.ReasonInstanceGone) })
	m, _ = s.infra("m1")
	wantCondition(t, m, reconciler.ProvisionedCondition, metav1.ConditionTrue, "")
	if !m.Status.Ready || s.cloud.Calls(fake.OpCreate) != 1 {
		t.Errorf("%d creations, status %+v; a machine is never made again", s.cloud.Calls(fake.OpCreate), m.Status)
	}
	s.delete(&clusterv1.Machine{}, "m1")
	s.until("it is gone", s.gone("m1"))
}

// TestPauseWithoutOwner: the infrastructure of a paused Cluster stays, also when it has
// lost the reference to that.
func TestPauseWithoutOwner(t *testing.T) {
	s := newStand(t)
	s.run("m1")
	infra, _ := s.infraCluster()
	infra.OwnerReferences = nil
	s.must(s.api.Update(t.Context(), infra))
	s.pause(true)
	s.delete(&infrav1.OutriggerMachine{}, "m1")
	s.delete(&infrav1.OutriggerCluster{}, clusterName)
	for range 3 {
		_, err := s.reconcileCluster(t.Context())
		s.must(err)
	}
	infra, there := s.infraCluster()
	if !there {
		t.Fatal("the infrastructure of a paused Cluster is gone")
	}
	wantCondition(t, infra, clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason)
}

// TestOneListForAllMachines: what all is well costs one call for each cluster
// and interval.
func TestOneListForAllMachines(t *testing.T) {
	s := newStand(t)
	s.addCluster()
	for _, name := range []string{"m1", "m2", "m3"} {
		s.addMachine(name)
		s.bootstrap(name)
		s.until(name+" is provisioned", s.provisioned(name))
	}
	s.clock.advance(time.Hour)
	lists, gets := s.cloud.Calls(fake.OpList), s.cloud.Calls(fake.OpGet)
	for range 5 {
		for _, name := range []string{"m1", "m2", "m3"} {
			if _, err := s.reconcileMachine(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if lists, gets = s.cloud.Calls(fake.OpList)-lists, s.cloud.Calls(fake.OpGet)-gets; lists != 1 || gets != 0 {
		t.Errorf("%d lists and %d look-ups for three machines", lists, gets)
	}
}

// TestStatusIsRebuilt: after a move there is none.
func TestStatusIsRebuilt(t *testing.T) {
	s := newStand(t)
	m := s.run("m1")
	before := m.Status
	m.Status = infrav1.MachineStatus{}
	s.must(s.api.Status().Update(t.Context(), m))
	c, _ := s.cluster()
	c.Status = clusterv1.ClusterStatus{}
	s.must(s.api.Status().Update(t.Context(), c))
	s.changeMachine("m1", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = nil })
	if _, err := s.reconcileMachine(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	m, _ = s.infra("m1")
	if !m.Status.Ready || len(m.Status.Addresses) != len(before.Addresses) || s.cloud.Calls(fake.OpCreate) != 1 {
		t.Errorf("status %+v, want %+v", m.Status, before)
	}
	wantCondition(t, m, clusterv1.ReadyCondition, metav1.ConditionTrue, "")
}

// TestDeletedWhileItIsMade: the call is given up, and what it made all the same
// is removed.
func TestDeletedWhileItIsMade(t *testing.T) {
	s := newStand(t)
	block, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(block)
	s.addCluster()
	s.addMachine("m1")
	s.bootstrap("m1")
	s.until("it is being made", func() bool { return has(s, "m1", "CreatingInstance") })
	<-gate.Reached()
	m, _ := s.infra("m1")
	if m.Status.Step != "CreateInstance" || m.Annotations[infrav1.BeganAnnotation] == "" {
		t.Errorf("%+v", m)
	}
	s.delete(&clusterv1.Machine{}, "m1")
	s.until("it is gone", s.gone("m1"))
	s.wantInstances(0)
}

// hidden shows new instances in lists only after a while.
type hidden struct {
	*fake.Cloud
	until func() time.Time
}

func (h hidden) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	list, err := h.Cloud.ListInstances(ctx, match)
	if time.Now().Before(h.until()) {
		return nil, err
	}
	return list, err
}

// TestLostReplyAndLateList: the creation's reply is lost and the cloud does not
// show the instance yet when its machine is deleted.
func TestLostReplyAndLateList(t *testing.T) {
	var shown atomic.Int64 // Unix milliseconds
	shown.Store(time.Now().Add(time.Hour).UnixMilli())
	var cloud *fake.Cloud
	s := newStand(t, func(o *managerOptions) {
		cloud = o.provider.(*fake.Cloud)
		o.provider, o.settle, o.now = hidden{cloud, func() time.Time { return time.UnixMilli(shown.Load()) }}, 2*time.Second, nil
	})
	cloud.Inject(fake.LostReply(fake.OpCreate).Repeated(-1))
	s.addCluster()
	s.addMachine("m1")
	s.bootstrap("m1")
	s.until("the reply is lost", func() bool { return has(s, "m1", "Unavailable") })
	s.wantInstances(1)
	s.delete(&infrav1.OutriggerMachine{}, "m1")
	shown.Store(time.Now().Add(200 * time.Millisecond).UnixMilli())
	s.until("it is gone", s.gone("m1"))
	s.wantInstances(0)
}

func TestFailureDomains(t *testing.T) {
	zones := map[string]*fake.Cloud{}
	s := newStand(t, func(o *managerOptions) {
		o.domains = map[string]provider.Provider{}
		for _, name := range []string{"a", "b"} {
			zones[name] = newCloud(t)
			o.domains[name] = zones[name]
		}
	})
	s.addCluster()
	c, _ := s.infraCluster()
	c.Spec.FailureDomains = []clusterv1.FailureDomain{{Name: "a"}, {Name: "b"}}
	s.must(s.api.Update(t.Context(), c))
	s.addMachine("m1")
	s.bootstrap("m1")
	s.changeMachine("m1", func(m *clusterv1.Machine) { m.Spec.FailureDomain = "z" })
	s.until("an unknown one is refused", func() bool { return has(s, "m1", reconciler.ReasonFailureDomainUnknown) })
	s.changeMachine("m1", func(m *clusterv1.Machine) { m.Spec.FailureDomain = "b" })
	s.until("it is provisioned", s.provisioned("m1"))
	if m, _ := s.infra("m1"); m.Status.FailureDomain != "b" {
		t.Errorf("failure domain %q", m.Status.FailureDomain)
	}
	if got := instances(t, zones["b"]); len(got) != 1 {
		t.Errorf("zone b has instances of %q", got)
	}
	s.delete(&clusterv1.Cluster{}, clusterName)
	s.until("all is gone", func() bool { _, ok := s.cluster(); return !ok })
	if got := instances(t, zones["b"]); len(got) != 0 {
		t.Errorf("zone b still has instances of %q", got)
	}
}

func newCloud(t *testing.T) *fake.Cloud {
	t.Helper()
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return cloud
}

// TestCollector: an instance whose machine lost its finalizer by force is
// removed after a while, those of machines, of paused clusters and of others
// are not.
func TestCollector(t *testing.T) {
	s := newStand(t)
	s.run("m1")
	s.addMachine("m2")
	s.bootstrap("m2")
	s.until("m2 is provisioned", s.provisioned("m2"))
	foreign := provider.InstanceTypeSpec{Tags: map[string]string{provider.TagCluster: "another", provider.TagPod: "foreign"}}
	if _, err := s.cloud.CreateInstance(t.Context(), "foreign", "k", cloudinit.Raw(""), foreign); err != nil {
		t.Fatal(err)
	}
	s.changeInfra("m2", func(m *infrav1.OutriggerMachine) { m.Finalizers = nil })
	s.delete(&infrav1.OutriggerMachine{}, "m2")
	collector := &reconciler.Collector{
		Base: reconciler.Base{Client: s.api, Now: s.clock.now}, Reader: s.api, Inventory: s.backend, Grace: time.Minute,
		NewClusters: func() client.ObjectList { return &infrav1.OutriggerClusterList{} },
		NewMachines: func() client.ObjectList { return &infrav1.OutriggerMachineList{} },
	}
	look := func(want int) {
		t.Helper()
		s.clock.advance(time.Hour)
		s.must(collector.Collect(t.Context()))
		s.wantInstances(want)
	}
	s.world.pause(true)
	look(3)
	look(3)
	s.world.pause(false)
	look(3) // seen for the first time
	look(2)
	look(2)
}

// TestRemovalIsToldOnce: a cloud that takes long to remove something lists it
// meanwhile.
func TestRemovalIsToldOnce(t *testing.T) {
	s := newStand(t)
	s.run("m1")
	recorder := events.NewFakeRecorder(10)
	c, _ := s.infraCluster()
	listed := &lingering{owned: []reconciler.Owned{{ID: "i-1", Key: "lost"}}, of: c.Annotations[infrav1.KeyAnnotation]}
	collector := &reconciler.Collector{
		Base: reconciler.Base{Client: s.api, Now: s.clock.now, Events: controllers.NewRecorder(recorder, s.clock.now)}, Reader: s.api, Inventory: listed, Grace: time.Minute,
		NewClusters: func() client.ObjectList { return &infrav1.OutriggerClusterList{} },
		NewMachines: func() client.ObjectList { return &infrav1.OutriggerMachineList{} },
	}
	look := func() {
		s.clock.advance(time.Hour)
		s.must(collector.Collect(t.Context()))
	}
	for range 6 {
		look()
	}
	if listed.removed < 2 || len(recorder.Events) != 1 {
		t.Errorf("%d removals, %d events", listed.removed, len(recorder.Events))
	}
	owned := listed.owned
	listed.owned = nil
	look()
	listed.owned = owned // another of that name
	look()
	look()
	if len(recorder.Events) != 2 {
		t.Errorf("%d events of two", len(recorder.Events))
	}
}

// lingering lists what was removed.
type lingering struct {
	owned   []reconciler.Owned
	of      string
	removed int
}

func (l *lingering) Owned(_ context.Context, s *reconciler.ClusterScope) ([]reconciler.Owned, error) {
	if s.Key != l.of {
		return nil, nil
	}
	return l.owned, nil
}

func (l *lingering) Remove(context.Context, *reconciler.ClusterScope, string) error {
	l.removed++
	return nil
}

// TestCopies: manifests that were applied a second time under another name carry
// the keys of the first. Nothing is made for them, and their deletion takes
// nothing from the first.
func TestCopies(t *testing.T) {
	s := newStand(t)
	first := s.run("m1")
	s.addMachine("m2")
	s.bootstrap("m2")
	s.changeInfra("m2", func(m *infrav1.OutriggerMachine) {
		m.Annotations, m.Finalizers, m.Spec = first.Annotations, first.Finalizers, first.Spec
	})
	s.until("the copy is known as one", func() bool { return has(s, "m2", reconciler.ReasonIdentityTaken) })
	s.delete(&infrav1.OutriggerMachine{}, "m2")
	s.until("the copy is gone", s.gone("m2"))
	s.wantInstances(1)
	s.delete(&infrav1.OutriggerMachine{}, "m1")
	s.until("the first is gone", s.gone("m1"))
	s.wantInstances(0)
}

// TestCopyOfACluster is never provisioned, and its deletion removes no machine.
func TestCopyOfACluster(t *testing.T) {
	s := newStand(t)
	s.run("m1")
	first, _ := s.infraCluster()
	cluster, _ := s.cluster()
	second := &infrav1.OutriggerCluster{ObjectMeta: meta("c2")}
	second.Namespace = namespace
	second.Annotations, second.Finalizers, second.Spec = first.Annotations, first.Finalizers, first.Spec
	s.must(controllerutil.SetOwnerReference(cluster, second, scheme))
	s.create(second)
	look := func() {
		t.Helper()
		_, err := s.clusterR.Reconcile(t.Context(), reconcile.Request{NamespacedName: key("c2")})
		s.must(err)
	}
	look()
	second, _ = get(s.world, &infrav1.OutriggerCluster{}, "c2")
	wantCondition(t, second, reconciler.ProvisionedCondition, metav1.ConditionFalse, reconciler.ReasonIdentityTaken)
	s.delete(&infrav1.OutriggerCluster{}, "c2")
	look()
	if _, there := get(s.world, &infrav1.OutriggerCluster{}, "c2"); there {
		t.Error("the copy is still there")
	}
	s.wantInstances(1)
}
