// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
)

// poolWorld has a pool p of three machines, with what core does for it.
type poolWorld struct {
	*world
	r *reconciler.PoolReconciler
	// writes counts requests that change something.
	writes int
	// refuse, if any, is what the API server says to a new machine.
	refuse error
}

func newPoolWorld(t *testing.T) *poolWorld {
	w := &poolWorld{}
	api := fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(
		&clusterv1.Cluster{}, &clusterv1.MachinePool{}, &infrav1.DockerMachinePool{}, &infrav1.DockerMachine{}).Build()
	w.world = &world{t: t, api: interceptor.NewClient(api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, machine := o.(*infrav1.DockerMachine); machine && w.refuse != nil {
				return w.refuse
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.writes++
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})}
	w.r = &reconciler.PoolReconciler{
		Base: reconciler.Base{Client: w.api}, Finalizer: infrav1.DockerMachinePoolFinalizer, Live: w.api,
		MachineKind: infrav1.GroupVersion.WithKind("DockerMachine"),
		New:         func() reconciler.InfraPool { return &infrav1.DockerMachinePool{} },
		NewMachine: func(p reconciler.InfraPool) reconciler.InfraMachine {
			return &infrav1.DockerMachine{Spec: infrav1.DockerMachineSpec{DockerNodeSpec: p.(*infrav1.DockerMachinePool).Spec.Template}}
		},
		NewMachines: func() client.ObjectList { return &infrav1.DockerMachineList{} },
	}
	w.r.Complete()
	w.addPool()
	return w
}

func (w *poolWorld) addPool() {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName}}
	yes := true
	c.Status.Initialization.InfrastructureProvisioned = &yes
	w.create(c)
	w.must(w.api.Status().Update(context.Background(), c))
	mp := &clusterv1.MachinePool{ObjectMeta: meta("p")}
	replicas, secret := int32(3), "p"
	mp.Spec = clusterv1.MachinePoolSpec{ClusterName: clusterName, Replicas: &replicas}
	mp.Spec.Template.Spec.Version = "v1"
	mp.Spec.Template.Spec.Bootstrap.DataSecretName = &secret
	w.create(mp)
	pool := &infrav1.DockerMachinePool{ObjectMeta: meta("p")}
	pool.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Name: "p", UID: mp.UID}}
	w.create(pool)
}

func (w *poolWorld) reconcile() {
	w.t.Helper()
	_, err := w.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: key("p")})
	w.must(err)
}

// machines returns those there are, each with the template's image.
func (w *poolWorld) machines() (names []string) {
	w.t.Helper()
	var list infrav1.DockerMachineList
	w.must(w.api.List(context.Background(), &list))
	for _, m := range list.Items {
		name := m.Name + m.Spec.CustomImage
		if !m.DeletionTimestamp.IsZero() {
			name += " leaves"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// core makes the Machine of each machine and has it provisioned; what is to be
// deleted goes.
func (w *poolWorld) core() {
	w.t.Helper()
	ctx := context.Background()
	var list infrav1.DockerMachineList
	w.must(w.api.List(ctx, &list))
	for _, m := range list.Items {
		_, found := get(w.world, &clusterv1.Machine{}, m.Name)
		if !found && len(m.OwnerReferences) > 1 {
			w.must(client.IgnoreNotFound(w.api.Delete(ctx, &m)))
			continue
		}
		if !found {
			machine := w.member(m.Name)
			w.create(machine)
			m.OwnerReferences = append(m.OwnerReferences, *metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine")))
		}
		m.Spec.ProviderID = "docker:////" + m.Name
		w.must(w.api.Update(ctx, &m))
		yes := true
		m.Status.Initialization.Provisioned, m.Status.Ready = &yes, true
		w.must(w.api.Status().Update(ctx, &m))
	}
}

// member is the Machine that core makes of a machine of the pool.
func (w *poolWorld) member(name string) *clusterv1.Machine {
	mp, _ := get(w.world, &clusterv1.MachinePool{}, "p")
	m := &clusterv1.Machine{ObjectMeta: meta(name)}
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: clusterName, clusterv1.MachinePoolNameLabel: "p"}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(mp, clusterv1.GroupVersion.WithKind("MachinePool"))}
	m.Spec.ClusterName, m.Spec.InfrastructureRef = clusterName, infraRef("DockerMachine", name)
	return m
}

func (w *poolWorld) change(f func(*clusterv1.MachinePool)) {
	w.t.Helper()
	mp, _ := get(w.world, &clusterv1.MachinePool{}, "p")
	f(mp)
	w.must(w.api.Update(context.Background(), mp))
}

func (w *poolWorld) pool() *infrav1.DockerMachinePool {
	p, _ := get(w.world, &infrav1.DockerMachinePool{}, "p")
	return p
}

func (w *poolWorld) want(machines ...string) {
	w.t.Helper()
	if d := cmp.Diff(machines, w.machines()); d != "" {
		w.t.Fatalf("machines (-want +got):\n%s", d)
	}
}

// settle lets both sides work until nothing changes any more; it returns how
// many machines there were at the least on the way.
func (w *poolWorld) settle() (least int) {
	w.t.Helper()
	least = len(w.machines())
	for quiet, before := 0, ""; quiet < 3; {
		w.reconcile()
		least = min(least, len(w.machines()))
		w.core()
		least = min(least, len(w.machines()))
		now := fmt.Sprint(w.machines(), w.writes)
		if quiet++; now != before {
			quiet, before = 0, now
		}
	}
	return least
}

func TestPoolOfMachines(t *testing.T) {
	w := newPoolWorld(t)
	w.reconcile()
	w.want("p-0", "p-1", "p-2")
	m, _ := get(w.world, &infrav1.DockerMachine{}, "p-1")
	if m.Labels[clusterv1.MachinePoolNameLabel] != "p" || m.Labels[clusterv1.ClusterNameLabel] != clusterName || metav1.GetControllerOf(m) != nil {
		t.Errorf("core does not find machine %+v", m.ObjectMeta)
	}
	if p := w.pool(); p.Status.Ready || p.Status.InfrastructureMachineKind != "DockerMachine" {
		t.Errorf("status before machines are there: %+v", p.Status)
	}
	w.settle()
	p := w.pool()
	want := []string{"docker:////p-0", "docker:////p-1", "docker:////p-2"}
	if d := cmp.Diff(want, p.Spec.ProviderIDList); d != "" {
		t.Errorf("providerIDList (-want +got):\n%s", d)
	}
	for _, i := range p.Status.Instances {
		if i.Version != "v1" {
			t.Errorf("version %q of %s, want v1", i.Version, i.InstanceName)
		}
	}
	if !p.Status.Ready || p.Status.Replicas != 3 || len(p.Status.Instances) != 3 || p.Status.Initialization.Provisioned == nil {
		t.Errorf("status: %+v", p.Status)
	}
	before := w.writes
	w.reconcile()
	if w.writes != before {
		t.Errorf("%d writes of a pool that is as it should be", w.writes-before)
	}
}

func TestPoolScales(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	for _, n := range []int32{5, 1, 0, 2} {
		w.change(func(mp *clusterv1.MachinePool) { mp.Spec.Replicas = &n })
		w.settle()
		if got := len(w.machines()); got != int(n) || w.pool().Status.Replicas != n || len(w.pool().Spec.ProviderIDList) != int(n) {
			t.Errorf("%d machines %v, status %+v, want %d", got, w.machines(), w.pool().Status, n)
		}
	}
}

// The one that somebody has marked goes first.
func TestPoolRemovesTheMarked(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	m, _ := get(w.world, &clusterv1.Machine{}, "p-1")
	m.Annotations = map[string]string{clusterv1.DeleteMachineAnnotation: "yes"}
	w.must(w.api.Update(context.Background(), m))
	two := int32(2)
	w.change(func(mp *clusterv1.MachinePool) { mp.Spec.Replicas = &two })
	w.settle()
	w.want("p-0", "p-2")
}

// A new template or version replaces the machines one by one.
func TestPoolRollsOut(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	p := w.pool()
	p.Spec.Template.CustomImage = ":2"
	w.must(w.api.Update(context.Background(), p))
	if least := w.settle(); least != 2 {
		t.Errorf("there were %d machines on the way, want 2", least)
	}
	w.want("p-0:2", "p-1:2", "p-2:2")
	uid := func() types.UID { m, _ := get(w.world, &clusterv1.Machine{}, "p-0"); return m.UID }
	before := uid()
	w.change(func(mp *clusterv1.MachinePool) { mp.Spec.Template.Spec.Version = "v2" })
	w.settle()
	if uid() == before {
		t.Error("another version makes no other machine")
	}
}

// A template that never works can be replaced.
func TestPoolLeavesABrokenTemplate(t *testing.T) {
	w := newPoolWorld(t)
	w.reconcile()
	p := w.pool()
	p.Spec.Template.CustomImage = ":2"
	w.must(w.api.Update(context.Background(), p))
	for range 10 {
		w.reconcile() // core does nothing, so no machine is ever provisioned
	}
	w.want("p-0:2", "p-1", "p-2")
}

func TestPoolWaits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*poolWorld)
		want   string
	}{
		"bootstrap data": {func(w *poolWorld) {
			w.change(func(mp *clusterv1.MachinePool) { mp.Spec.Template.Spec.Bootstrap.DataSecretName = nil })
		}, clusterv1.WaitingForBootstrapDataReason},
		"infrastructure": {func(w *poolWorld) {
			c, _ := w.cluster()
			c.Status.Initialization.InfrastructureProvisioned = nil
			w.must(w.api.Status().Update(context.Background(), c))
		}, clusterv1.WaitingForClusterInfrastructureReadyReason},
		"pause": {func(w *poolWorld) {
			c, _ := w.cluster()
			yes := true
			c.Spec.Paused = &yes
			w.must(w.api.Update(context.Background(), c))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPoolWorld(t)
			c.change(w)
			w.reconcile()
			w.want()
			reason := ""
			for _, have := range w.pool().Status.Conditions {
				if have.Type == clusterv1.ReadyCondition {
					reason = have.Reason
				}
			}
			if reason != c.want {
				t.Errorf("Ready says %q, want %q", reason, c.want)
			}
		})
	}
}

// TestPoolSaysWhatIsRefused: what the API server says to a machine of a pool is a
// condition of the pool, before it is provisioned and afterwards, until it ends.
func TestPoolSaysWhatIsRefused(t *testing.T) {
	w := newPoolWorld(t)
	refuse := func(condition string) {
		t.Helper()
		w.refuse = apierrors.NewForbidden(infrav1.GroupVersion.WithResource("dockermachines").GroupResource(), "p-0", errors.New("exceeded quota: machines"))
		if _, err := w.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: key("p")}); err == nil {
			t.Error("what is refused is not tried again")
		}
		p := w.pool()
		wantCondition(t, p, condition, metav1.ConditionFalse, reconciler.ReasonRequestRefused)
		wantCondition(t, p, clusterv1.ReadyCondition, metav1.ConditionFalse, reconciler.ReasonRequestRefused)
		if i := slices.IndexFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Type == clusterv1.ReadyCondition }); !strings.Contains(p.Status.Conditions[i].Message, "exceeded quota: machines") {
			t.Errorf("the message is %q", p.Status.Conditions[i].Message)
		}
		w.refuse = nil
		w.settle()
		wantCondition(t, w.pool(), clusterv1.ReadyCondition, metav1.ConditionTrue, "")
	}
	refuse(reconciler.ProvisionedCondition)
	five := int32(5)
	w.change(func(mp *clusterv1.MachinePool) { mp.Spec.Replicas = &five })
	refuse(reconciler.HealthyCondition)
}

// TestFormerFinalizers: a finalizer of an earlier version gives way to that of this
// one, and an object in deletion goes with either.
func TestFormerFinalizers(t *testing.T) {
	former := infrav1.FormerFinalizer(infrav1.DockerMachinePoolFinalizer)
	if former != "dockermachinepool.infrastructure.cluster.x-k8s.io" {
		t.Fatal(former)
	}
	for _, f := range []string{infrav1.DockerClusterFinalizer, infrav1.DockerMachineFinalizer, infrav1.DockerMachinePoolFinalizer, infrav1.OutriggerClusterFinalizer, infrav1.OutriggerMachineFinalizer} {
		if problems := validation.IsQualifiedName(f); len(problems) > 0 || !strings.Contains(f, "/") {
			t.Errorf("%s is not qualified by a domain: %q", f, problems)
		}
	}
	for _, deleted := range []bool{false, true} {
		w := newPoolWorld(t)
		p := w.pool()
		p.Finalizers = []string{former, "of.others/too"}
		w.must(w.api.Update(context.Background(), p))
		if deleted {
			w.must(w.api.Delete(context.Background(), p))
			w.reconcile()
			if got := w.pool().Finalizers; !slices.Equal(got, []string{"of.others/too"}) {
				t.Errorf("in deletion: %q", got)
			}
			continue
		}
		w.reconcile()
		if got := w.pool().Finalizers; !slices.Equal(got, []string{"of.others/too", infrav1.DockerMachinePoolFinalizer}) {
			t.Errorf("of an object that lives: %q", got)
		}
	}
}

// A name that is somebody else's is left to them.
func TestPoolAvoidsNamesOfOthers(t *testing.T) {
	w := newPoolWorld(t)
	w.create(&infrav1.DockerMachine{ObjectMeta: meta("p-1")})
	w.settle()
	w.want("p-0", "p-1", "p-2", "p-3")
}

// TestPoolCollectsStrays: a Machine whose machine somebody has deleted, or that
// core has made too late, goes, and its name is not used before it is gone.
func TestPoolCollectsStrays(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	lost, _ := get(w.world, &infrav1.DockerMachine{}, "p-1")
	w.must(w.api.Delete(context.Background(), lost))
	drained, _ := get(w.world, &clusterv1.Machine{}, "p-1")
	drained.Finalizers = []string{"machine.cluster.x-k8s.io"}
	w.must(w.api.Update(context.Background(), drained))
	w.reconcile()
	w.want("p-0", "p-2", "p-3")
	if m, found := get(w.world, &clusterv1.Machine{}, "p-1"); !found || m.DeletionTimestamp.IsZero() {
		t.Error("the Machine that lost its machine is not deleted")
	}
	w.create(w.member("p-9"))
	w.settle()
	if _, found := get(w.world, &clusterv1.Machine{}, "p-9"); found {
		t.Error("the Machine that core made too late is not deleted")
	}
	w.want("p-0", "p-2", "p-3")
	if n := len(w.pool().Status.Instances); n != 3 {
		t.Errorf("the pool has %d instances", n)
	}
}

// TestPoolKnowsItsMachinesAgain: machines that have lost the reference to their pool
// (a backup, a move by hand), or refer to its earlier UID, or have lost their labels,
// are adopted; others are not made beside them.
func TestPoolKnowsItsMachinesAgain(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	change := func(name string, f func(*infrav1.DockerMachine)) {
		m, _ := get(w.world, &infrav1.DockerMachine{}, name)
		f(m)
		w.must(w.api.Update(context.Background(), m))
	}
	change("p-0", func(m *infrav1.DockerMachine) { m.OwnerReferences = nil })
	change("p-1", func(m *infrav1.DockerMachine) { m.OwnerReferences[0].UID = "of-an-earlier-pool" })
	change("p-2", func(m *infrav1.DockerMachine) { m.OwnerReferences, m.Labels = nil, nil })
	w.reconcile()
	w.settle()
	w.want("p-0", "p-1", "p-2")
	for _, name := range w.machines() {
		m, _ := get(w.world, &infrav1.DockerMachine{}, name)
		owned := slices.ContainsFunc(m.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == w.pool().UID })
		if !owned || m.Labels[clusterv1.MachinePoolNameLabel] != "p" || m.Labels[clusterv1.ClusterNameLabel] != clusterName {
			t.Errorf("%s is not adopted: %+v", name, m.ObjectMeta)
		}
	}
	before := w.writes
	w.reconcile()
	if w.writes != before {
		t.Errorf("%d writes of a pool that is as it should be", w.writes-before)
	}
}

// TestPoolIsDeletedWithWhatLostIt: also machines without a reference to the pool go
// with it, when its MachinePool is gone too.
func TestPoolIsDeletedWithWhatLostIt(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	m, _ := get(w.world, &infrav1.DockerMachine{}, "p-1")
	m.OwnerReferences = nil
	w.must(w.api.Update(context.Background(), m))
	w.must(w.api.Delete(context.Background(), w.pool()))
	w.delete(&clusterv1.MachinePool{}, "p")
	for range 5 {
		w.reconcile()
		w.dropOrphans()
	}
	w.want()
	if p, there := get(w.world, &infrav1.DockerMachinePool{}, "p"); there {
		t.Errorf("the pool is still there: %v", p.Finalizers)
	}
}

// dropOrphans deletes the machines whose Machine is gone, as core does.
func (w *poolWorld) dropOrphans() {
	w.t.Helper()
	for _, name := range w.machines() {
		if _, found := get(w.world, &clusterv1.Machine{}, name); !found {
			w.delete(&infrav1.DockerMachine{}, name)
		}
	}
}

// TestPoolCollectsStraysThatLostTheirOwner: a Machine with the pool's labels, no
// owner and no machine is the pool's; one of another owner is not.
func TestPoolCollectsStraysThatLostTheirOwner(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	lost, other := w.member("p-8"), w.member("p-9")
	lost.OwnerReferences = nil
	other.OwnerReferences[0].Name = "another"
	w.create(lost)
	w.create(other)
	w.reconcile()
	if _, found := get(w.world, &clusterv1.Machine{}, "p-8"); found {
		t.Error("a Machine without owner and machine stays for ever")
	}
	if _, found := get(w.world, &clusterv1.Machine{}, "p-9"); !found {
		t.Error("a Machine of another pool is deleted")
	}
}

// TestPoolOwnsNoOthers: a Machine whose machine is there, and not this pool's, is
// left alone.
func TestPoolOwnsNoOthers(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	other := &infrav1.DockerMachine{ObjectMeta: meta("p-9")}
	w.create(other)
	w.create(w.member("p-9"))
	w.settle()
	if m, found := get(w.world, &clusterv1.Machine{}, "p-9"); !found || !m.DeletionTimestamp.IsZero() {
		t.Error("a Machine is deleted whose machine is there")
	}
}

func TestPoolIsDeleted(t *testing.T) {
	w := newPoolWorld(t)
	w.settle()
	w.must(w.api.Delete(context.Background(), w.pool()))
	w.reconcile()
	if len(w.pool().Finalizers) == 0 {
		t.Error("the pool is gone before its machines")
	}
	w.settle()
	w.want()
	if p, there := get(w.world, &infrav1.DockerMachinePool{}, "p"); there {
		t.Errorf("the pool is still there: %v", fmt.Sprint(p.Finalizers))
	}
}

// The Machine of a pool says nothing of its bootstrap data: its MachinePool
// does.
func TestMachineOfAPoolBoots(t *testing.T) {
	s := newStand(t)
	s.addCluster()
	s.addMachine("m")
	s.bootstrap("m")
	mp := &clusterv1.MachinePool{ObjectMeta: meta("p")}
	mp.Spec.ClusterName = clusterName
	s.create(mp)
	s.changeMachine("m", func(m *clusterv1.Machine) {
		empty := ""
		m.Spec.Bootstrap.DataSecretName = &empty
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(mp, clusterv1.GroupVersion.WithKind("MachinePool"))}
	})
	for range 5 {
		s.core()
		s.reconcileCluster(t.Context())
		s.reconcileMachine(t.Context(), "m")
	}
	m, _ := s.infra("m")
	wantCondition(t, m, reconciler.ProvisionedCondition, metav1.ConditionFalse, clusterv1.WaitingForBootstrapDataReason)
	secret := "m"
	mp.Spec.Template.Spec.Bootstrap.DataSecretName = &secret
	s.must(s.api.Update(context.Background(), mp))
	s.until("the machine is provisioned", s.provisioned("m"))
}
