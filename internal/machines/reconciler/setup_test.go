// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// TestOwnChanges: what the controller writes into a status does not end the
// pause after an error. All else is news.
func TestOwnChanges(t *testing.T) {
	machine := func() *infrav1.OutriggerMachine {
		m := &infrav1.OutriggerMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", ResourceVersion: "2", Generation: 1, Finalizers: []string{"f"}}}
		setFalse(m, ProvisionedCondition, "Unavailable", "request 2")
		return m
	}
	for name, c := range map[string]struct {
		change func(was, is *infrav1.OutriggerMachine)
		want   bool
	}{
		"another message":    {func(was, _ *infrav1.OutriggerMachine) { setFalse(was, ProvisionedCondition, "Other", "request 1") }, false},
		"one more condition": {func(_, is *infrav1.OutriggerMachine) { setTrue(is, HealthyCondition, ReasonHealthy) }, false},
		"provisioned": {func(_, is *infrav1.OutriggerMachine) {
			is.Status.Initialization = infrav1.Initialization{Provisioned: new(true)}
		}, false},
		"a look without change":  {func(was, _ *infrav1.OutriggerMachine) { was.ResourceVersion = "2" }, true},
		"a status that was lost": {func(_, is *infrav1.OutriggerMachine) { is.Status.Conditions = nil }, true},
		"provisioned no more": {func(was, _ *infrav1.OutriggerMachine) {
			was.Status.Initialization = infrav1.Initialization{Provisioned: new(true)}
		}, true},
		"another spec":  {func(_, is *infrav1.OutriggerMachine) { is.Generation = 2 }, true},
		"a label":       {func(_, is *infrav1.OutriggerMachine) { is.Labels = map[string]string{"a": "b"} }, true},
		"an annotation": {func(_, is *infrav1.OutriggerMachine) { is.Annotations = map[string]string{"a": "b"} }, true},
		"an owner":      {func(_, is *infrav1.OutriggerMachine) { is.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }, true},
		"no finalizer":  {func(_, is *infrav1.OutriggerMachine) { is.Finalizers = nil }, true},
		"a deletion":    {func(_, is *infrav1.OutriggerMachine) { is.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
	} {
		was, is := machine(), machine()
		was.ResourceVersion = "1"
		c.change(was, is)
		if got := ownChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestMachinesOfACluster: the end of a machine is news for a cluster that waits
// for it, and nothing else of it is for any.
func TestMachinesOfACluster(t *testing.T) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	cluster.Spec.InfrastructureRef.Name = "infra"
	infra := &infrav1.OutriggerCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "infra", Finalizers: []string{"f"}}}
	machine := &infrav1.OutriggerMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
	scheme := runtime.NewScheme()
	if err := errors.Join(clusterv1.AddToScheme(scheme), infrav1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, infra).Build()
	r := &ClusterReconciler{Base: Base{Client: c}, New: func() InfraCluster { return &infrav1.OutriggerCluster{} }}
	if got := r.ofMachine(t.Context(), machine); len(got) != 0 {
		t.Errorf("a cluster that is to stay looks at %v", got)
	}
	if err := c.Delete(t.Context(), infra); err != nil {
		t.Fatal(err)
	}
	if got := r.ofMachine(t.Context(), machine); len(got) != 1 || got[0].Name != "infra" {
		t.Errorf("a cluster that is being deleted looks at %v", got)
	}
	p := machineEnds()
	if p.Create(event.CreateEvent{Object: machine}) || p.Update(event.UpdateEvent{ObjectOld: machine, ObjectNew: machine}) || !p.Delete(event.DeleteEvent{Object: machine}) {
		t.Error("something else than the end of a machine is news, or that is none")
	}
}
