// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// TestBootstrapData: what is wrong with it is said, nothing is made, and what
// is put right is taken.
func TestBootstrapData(t *testing.T) {
	for reason, data := range map[string]map[string][]byte{
		reconciler.ReasonBootstrapSecretMissing: nil,
		reconciler.ReasonBootstrapDataInvalid:   {"wrong": []byte("key")},
		reconciler.ReasonBootstrapFormatUnknown: {"value": []byte("x"), "format": []byte("sysprep")},
		reconciler.ReasonBootstrapDataTooLarge:  {"value": bytes.Repeat([]byte("x"), 10<<20)},
	} {
		t.Run(reason, func(t *testing.T) {
			s := newStand(t)
			s.addCluster()
			s.addMachine("m1")
			s.until("it waits for bootstrap data", func() bool { return has(s, "m1", clusterv1.WaitingForBootstrapDataReason) })
			if data != nil {
				s.create(&corev1.Secret{ObjectMeta: meta("m1"), Data: data})
			}
			s.changeMachine("m1", func(m *clusterv1.Machine) { name := "m1"; m.Spec.Bootstrap.DataSecretName = &name })
			s.until(reason, func() bool { return has(s, "m1", reason) })
			s.wantInstances(0)
			m, _ := s.infra("m1")
			wantCondition(t, m, reconciler.BootstrapDataReadyCondition, metav1.ConditionFalse, reason)
			result, err := s.reconcileMachine(t.Context(), "m1")
			if err != nil || result.RequeueAfter == 0 {
				t.Errorf("%+v, %v; want it to be looked at again", result, err)
			}
			s.delete(&corev1.Secret{}, "m1")
			s.bootstrap("m1")
			s.until("it is provisioned", s.provisioned("m1"))
		})
	}
}

// TestBootstrapSecretThatMayNotBeRead: a manager whose rights were narrowed says so on the
// machine, and goes on when it has them.
func TestBootstrapSecretThatMayNotBeRead(t *testing.T) {
	s := newStand(t)
	s.addCluster()
	s.addMachine("m1")
	s.bootstrap("m1")
	s.machineR.Live = interceptor.NewClient(s.api.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, into client.Object, opts ...client.GetOption) error {
			if _, secret := into.(*corev1.Secret); secret {
				return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New("no rights"))
			}
			return c.Get(ctx, key, into, opts...)
		},
	})
	s.until("it says so", func() bool { return has(s, "m1", reconciler.ReasonBootstrapSecretForbidden) })
	s.wantInstances(0)
	m, _ := s.infra("m1")
	if c := condition(m, clusterv1.ReadyCondition); !strings.Contains(c.Message, "may not read Secret m1") {
		t.Errorf("the message is %q", c.Message)
	}
	if result, err := s.reconcileMachine(t.Context(), "m1"); err != nil || result.RequeueAfter == 0 {
		t.Errorf("%+v, %v; want it to be looked at again", result, err)
	}
	s.machineR.Live = s.api
	s.until("it is provisioned", s.provisioned("m1"))
}

// has reports whether a machine is not Ready for that reason.
func has(s *stand, name, reason string) bool {
	m, ok := s.infra(name)
	if !ok {
		return false
	}
	for _, c := range m.Status.Conditions {
		if c.Type == clusterv1.ReadyCondition {
			return c.Status != metav1.ConditionTrue && c.Reason == reason
		}
	}
	return false
}

func TestClusterIsDeletedBeforeItsInfrastructureIsReady(t *testing.T) {
	s := newStand(t)
	s.addCluster()
	c, _ := s.infraCluster()
	c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
	s.must(s.api.Update(t.Context(), c))
	s.addMachine("m1")
	s.bootstrap("m1")
	s.until("the cluster waits for an endpoint, and the machine for the cluster", func() bool {
		c, _ := s.infraCluster()
		r := condition(c, clusterv1.ReadyCondition)
		return r != nil && r.Reason == reconciler.ReasonWaitingForEndpoint && has(s, "m1", clusterv1.WaitingForClusterInfrastructureReadyReason)
	})
	s.delete(&clusterv1.Cluster{}, clusterName)
	s.until("all is gone", func() bool { _, ok := s.cluster(); return !ok && len(s.infras()) == 0 })
	if n := s.cloud.Calls(fake.OpCreate); n != 0 {
		t.Errorf("%d instances were asked for", n)
	}
}

// TestMachineIsDeletedBeforeItIsMade: nothing is made for a Machine that is on
// its way out, though its infrastructure is not deleted yet.
func TestMachineIsDeletedBeforeItIsMade(t *testing.T) {
	s := newStand(t)
	s.addCluster()
	s.addMachine("m1")
	s.until("it waits for bootstrap data", func() bool { return has(s, "m1", clusterv1.WaitingForBootstrapDataReason) })
	s.bootstrap("m1")
	s.delete(&clusterv1.Machine{}, "m1")
	for range 5 {
		s.reconcileMachine(t.Context(), "m1")
	}
	if n := s.cloud.Calls(fake.OpCreate); n != 0 {
		t.Errorf("%d instances were asked for", n)
	}
	s.until("it is gone", s.gone("m1"))
}

func condition(o interface{ ContractStatus() *infrav1.Status }, kind string) *metav1.Condition {
	for _, c := range o.ContractStatus().Conditions {
		if c.Type == kind {
			return &c
		}
	}
	return nil
}

// TestInfrastructureIsDeletedFirst: the cluster's waits for its machines, and
// they go without it.
func TestInfrastructureIsDeletedFirst(t *testing.T) {
	s := newStand(t)
	s.run("m1")
	s.delete(&infrav1.OutriggerCluster{}, clusterName)
	s.until("it says what it waits for", func() bool {
		c, _ := s.infraCluster()
		d := condition(c, clusterv1.DeletingCondition)
		return d != nil && d.Reason == reconciler.ReasonWaitingForMachines && strings.Contains(d.Message, "1 machine")
	})
	s.wantInstances(1)
	s.delete(&infrav1.OutriggerMachine{}, "m1")
	s.until("both are gone", func() bool { _, ok := s.infraCluster(); return !ok && len(s.infras()) == 0 })
	s.wantInstances(0)
}

// TestNothingBeginsInAClusterThatLeaves: its infrastructure is deleted, the Cluster
// is not; whether a cache shows that or not, nothing is made.
func TestNothingBeginsInAClusterThatLeaves(t *testing.T) {
	for _, stale := range []bool{false, true} {
		t.Run(fmt.Sprintf("stale=%v", stale), func(t *testing.T) {
			var cached *infrav1.OutriggerCluster
			s := newStand(t, func(o *managerOptions) { o.stale = func(o client.Object) bool { return shows(o, cached) } })
			s.run("m1") // keeps the cluster from being gone at once
			s.addMachine("m2")
			s.bootstrap("m2")
			s.core()
			if stale {
				cached, _ = s.infraCluster()
			}
			s.delete(&infrav1.OutriggerCluster{}, clusterName)
			for range 3 {
				s.reconcileMachine(t.Context(), "m2")
			}
			m, _ := s.infra("m2")
			if began := m.Annotations[infrav1.BeganAnnotation] != ""; !has(s, "m2", clusterv1.DeletingReason) || began != stale {
				t.Errorf("m2 is %+v", m)
			}
			if n := s.cloud.Calls(fake.OpCreate); n != 1 {
				t.Errorf("%d instances were asked for", n)
			}
			s.delete(&clusterv1.Cluster{}, clusterName)
			cached = nil
			s.until("all is gone", func() bool { _, ok := s.cluster(); return !ok && len(s.infras()) == 0 })
			s.wantInstances(0)
		})
	}
}

// shows makes an object what a cache has of it.
func shows(o client.Object, cached *infrav1.OutriggerCluster) bool {
	there, ok := o.(*infrav1.OutriggerCluster)
	if ok && cached != nil {
		cached.DeepCopyInto(there)
	}
	return ok && cached != nil
}

// TestDeletionSeesAMachineThatHasJustBegun, which its cache does not show yet.
func TestDeletionSeesAMachineThatHasJustBegun(t *testing.T) {
	hidden := false
	s := newStand(t, func(o *managerOptions) { o.hideMachines = func() bool { return hidden } })
	s.run("m1")
	hidden = true
	s.delete(&infrav1.OutriggerCluster{}, clusterName)
	for range 3 {
		s.reconcileCluster(t.Context())
	}
	s.wantInstances(1)
	c, ok := s.infraCluster()
	if !ok {
		t.Fatal("the cluster is gone before its machine")
	}
	wantCondition(t, c, clusterv1.DeletingCondition, metav1.ConditionTrue, reconciler.ReasonWaitingForMachines)
	hidden = false
	s.delete(&clusterv1.Cluster{}, clusterName)
	s.until("all is gone", func() bool { _, ok := s.cluster(); return !ok && len(s.infras()) == 0 })
	s.wantInstances(0)
}

// TestNothingIsNeededToDelete: Machine, Cluster and its infrastructure were
// taken away by force.
func TestNothingIsNeededToDelete(t *testing.T) {
	s := newStand(t)
	m := s.run("m1")
	for _, o := range []client.Object{&clusterv1.Machine{ObjectMeta: meta("m1")}, &infrav1.OutriggerCluster{ObjectMeta: meta(clusterName)}, &clusterv1.Cluster{ObjectMeta: meta(clusterName)}} {
		o.SetNamespace(namespace)
		s.must(s.api.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		o.SetFinalizers(nil)
		s.must(s.api.Update(t.Context(), o))
		s.must(s.api.Delete(t.Context(), o))
	}
	s.delete(m, "m1")
	for i := 0; i < 10000 && !s.gone("m1")(); i++ {
		s.reconcileMachine(t.Context(), "m1")
	}
	if !s.gone("m1")() {
		t.Fatal("the finalizer stays")
	}
	s.wantInstances(0)
}

func TestTwoManagers(t *testing.T) {
	s := newStand(t)
	other := newManager(t, s.world, managerOptions{provider: s.cloud.Reopen()})
	s.addCluster()
	s.addMachine("m1")
	s.bootstrap("m1")
	s.until("the cluster is ready", func() bool {
		c, _ := s.cluster()
		return c.Status.Initialization.InfrastructureProvisioned != nil
	})
	both := func() {
		var wait sync.WaitGroup
		for _, m := range []*manager{s.manager, other} {
			wait.Go(func() { m.reconcileMachine(context.Background(), "m1") })
		}
		wait.Wait()
	}
	for i := 0; i < 10000 && !s.provisioned("m1")(); i++ {
		s.core()
		both()
	}
	s.wantInstances(1)
	s.delete(&clusterv1.Machine{}, "m1")
	for i := 0; i < 10000 && !s.gone("m1")(); i++ {
		s.core()
		both()
	}
	if !s.gone("m1")() {
		t.Error("the finalizer stays")
	}
	s.wantInstances(0)
}

// TestProviderIDOfAnother: somebody else's instance is neither believed nor
// touched.
func TestProviderIDOfAnother(t *testing.T) {
	s := newStand(t)
	first := s.run("m1")
	for name, id := range map[string]string{"m2": first.Spec.ProviderID, "m3": "aws:///eu-central-1a/i-1", "m4": "outrigger://fake/fake-999999"} {
		s.addMachine(name)
		s.bootstrap(name)
		s.changeInfra(name, func(m *infrav1.OutriggerMachine) { m.Spec.ProviderID = id })
	}
	s.until("they are refused", func() bool {
		return has(s, "m2", reconciler.ReasonInfrastructureOfAnother) && has(s, "m3", reconciler.ReasonInfrastructureOfAnother) && has(s, "m4", reconciler.ReasonInstanceGone)
	})
	for _, name := range []string{"m2", "m3", "m4"} {
		if s.provisioned(name)() {
			t.Errorf("%s is provisioned", name)
		}
		s.delete(&clusterv1.Machine{}, name)
		s.until(name+" is gone", s.gone(name))
	}
	s.wantInstances(1)
	if m, _ := s.infra("m1"); condition(m, clusterv1.ReadyCondition).Status != metav1.ConditionTrue {
		t.Error("the other machine is not Ready any more")
	}
}

// TestPaused: while it is paused only the condition Paused changes, whatever
// happens to the object.
func TestPaused(t *testing.T) {
	for name, pause := range map[string]func(*stand, bool){
		"Cluster": func(s *stand, on bool) { s.world.pause(on) },
		"annotation": func(s *stand, on bool) {
			s.changeInfra("m1", func(m *infrav1.OutriggerMachine) {
				delete(m.Annotations, clusterv1.PausedAnnotation)
				if on {
					m.Annotations[clusterv1.PausedAnnotation] = ""
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.run("m1")
			pause(s, true)
			s.reconcileMachine(t.Context(), "m1")
			before, _ := s.infra("m1")
			wantCondition(t, before, clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason)
			wantCondition(t, before, clusterv1.ReadyCondition, metav1.ConditionTrue, "")
			s.changeInfra("m1", func(m *infrav1.OutriggerMachine) { m.Spec.Image = "another" })
			s.must(s.cloud.PowerOff(t.Context(), strings.TrimPrefix(before.Spec.ProviderID, "outrigger://fake/")))
			s.delete(&infrav1.OutriggerMachine{}, "m1")
			edited, _ := s.infra("m1")
			for range 5 {
				s.reconcileMachine(t.Context(), "m1")
			}
			if after, _ := s.infra("m1"); after.ResourceVersion != edited.ResourceVersion {
				t.Errorf("a paused object was written: %+v", after)
			}
			s.wantInstances(1)
			pause(s, false)
			s.until("it is gone", s.gone("m1"))
			s.wantInstances(0)
		})
	}
}

// TestHeldByOthers: an object of which nothing is left, and which others hold,
// does not say that it is Ready.
func TestHeldByOthers(t *testing.T) {
	s := newStand(t)
	m := s.run("m1")
	s.changeInfra("m1", func(m *infrav1.OutriggerMachine) { m.Finalizers = append(m.Finalizers, "example.com/hold") })
	s.must(s.cloud.DeleteInstance(t.Context(), strings.TrimPrefix(m.Spec.ProviderID, "outrigger://fake/")))
	s.delete(&infrav1.OutriggerMachine{}, "m1")
	s.until("the finalizer is gone", func() bool {
		s.reconcileMachine(t.Context(), "m1")
		m, _ := s.infra("m1")
		return len(m.Finalizers) == 1
	})
	left, _ := s.infra("m1")
	wantCondition(t, left, clusterv1.ReadyCondition, metav1.ConditionFalse, clusterv1.DeletingReason)
	wantCondition(t, left, clusterv1.DeletingCondition, metav1.ConditionTrue, clusterv1.DeletionCompletedReason)
}

// TestDeletedForMove: clusterctl replaces all annotations, deletes and takes
// the finalizers away. The instance lives on elsewhere.
func TestDeletedForMove(t *testing.T) {
	s := newStand(t)
	s.run("m1")
	s.changeInfra("m1", func(m *infrav1.OutriggerMachine) {
		m.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	})
	s.delete(&infrav1.OutriggerMachine{}, "m1")
	before, _ := s.infra("m1")
	for range 5 {
		s.reconcileMachine(t.Context(), "m1")
	}
	if after, ok := s.infra("m1"); !ok || after.ResourceVersion != before.ResourceVersion {
		t.Error("an object that was moved away was written")
	}
	s.changeInfra("m1", func(m *infrav1.OutriggerMachine) { m.Finalizers = nil })
	s.reconcileMachine(t.Context(), "m1")
	s.wantInstances(1)
}

// TestManagedByOthers: the cluster's infrastructure is neither object nor status
// of ours, its machines are.
func TestManagedByOthers(t *testing.T) {
	for name, mark := range map[string]func(client.Object){
		"annotation": func(o client.Object) { o.SetAnnotations(map[string]string{clusterv1.ManagedByAnnotation: "x"}) },
		"label": func(o client.Object) {
			o.SetLabels(map[string]string{clusterv1.ManagedByAnnotation: "x", clusterv1.ClusterNameLabel: clusterName})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.addCluster()
			c, _ := s.infraCluster()
			mark(c)
			s.must(s.api.Update(t.Context(), c))
			s.core()
			c, _ = s.infraCluster()
			for range 5 {
				s.reconcileCluster(t.Context())
			}
			if after, _ := s.infraCluster(); after.ResourceVersion != c.ResourceVersion {
				t.Errorf("it was written: %+v", after)
			}
			is := true
			c.Status.Initialization.Provisioned = &is
			s.must(s.api.Status().Update(t.Context(), c))
			s.addMachine("m1")
			s.bootstrap("m1")
			s.until("a machine in it is provisioned", s.provisioned("m1"))
		})
	}
}

// TestErrorsAreConditions: the class says the reason and when to try again.
func TestErrorsAreConditions(t *testing.T) {
	for _, class := range provider.Classes() {
		t.Run(class.Error(), func(t *testing.T) {
			s := newStand(t)
			s.addCluster()
			s.addMachine("m1")
			s.bootstrap("m1")
			s.cloud.Inject(fake.Fail(fake.OpCreate, class).Repeated(-1))
			s.until("the error is seen", func() bool {
				m, _ := s.infra("m1")
				c := condition(m, reconciler.ProvisionedCondition)
				return c != nil && strings.Contains(c.Message, "create instance at provider fake")
			})
			s.wantInstances(0)
			s.delete(&clusterv1.Machine{}, "m1")
			s.until("it is gone", s.gone("m1"))
		})
	}
}

// TestWatchFilter: what has another label is another manager's.
func TestWatchFilter(t *testing.T) {
	s := newStand(t, func(o *managerOptions) { o.filter = "mine" })
	s.addCluster()
	before, _ := s.infraCluster()
	s.core()
	s.reconcileCluster(t.Context())
	c, _ := s.infraCluster()
	if len(c.Finalizers) != len(before.Finalizers) || len(c.Status.Conditions) != 0 {
		t.Errorf("it was written: %+v", c)
	}
	c.Labels[clusterv1.WatchLabel] = "mine"
	s.must(s.api.Update(t.Context(), c))
	s.until("it is provisioned", func() bool { c, _ := s.infraCluster(); return c.Status.Ready })
}
