// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

func TestLife(t *testing.T) {
	s := newStand(t)
	m := s.run("m1")
	wantCondition(t, m, clusterv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
	wantCondition(t, m, reconciler.BootstrapDataReadyCondition, metav1.ConditionTrue, "")
	wantCondition(t, m, reconciler.ProvisionedCondition, metav1.ConditionTrue, "")
	wantCondition(t, m, clusterv1.PausedCondition, metav1.ConditionFalse, clusterv1.NotPausedReason)
	wantCondition(t, m, clusterv1.DeletingCondition, metav1.ConditionFalse, clusterv1.NotDeletingReason)
	if len(m.Status.Addresses) != 2 || m.Status.Step != "InstanceCreated" || !slices.Contains(m.Finalizers, infrav1.OutriggerMachineFinalizer) {
		t.Errorf("machine %+v", m)
	}
	c, _ := s.infraCluster()
	wantCondition(t, c, clusterv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
	left, err := s.cloud.Leaks()
	if err != nil {
		t.Fatal(err)
	}
	tags := left[0].Tags
	if tags[provider.TagKey] != m.Annotations[infrav1.KeyAnnotation] || tags[provider.TagCluster] != c.Annotations[infrav1.KeyAnnotation] ||
		tags[provider.TagPod] != "m1" || tags["outrigger-role"] != "worker" {
		t.Errorf("tags %v of %v", tags, m.Annotations)
	}
	s.wantInstances(1)
	s.delete(&clusterv1.Cluster{}, clusterName)
	s.until("all is gone", func() bool { _, ok := s.cluster(); return !ok })
	s.wantInstances(0)
}

// TestIdleWritesNothing: what is well is looked at and left alone.
func TestIdleWritesNothing(t *testing.T) {
	s := newStand(t)
	s.run("m1")
	s.until("everything is seen", func() bool { return true })
	before, _ := s.infra("m1")
	c, _ := s.infraCluster()
	calls := s.cloud.Calls(fake.OpCreate)
	for range 20 {
		if _, err := s.reconcileMachine(t.Context(), "m1"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.reconcileCluster(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := s.infra("m1"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("an idle machine was written: %+v, then %+v", before, after)
	}
	if after, _ := s.infraCluster(); after.ResourceVersion != c.ResourceVersion {
		t.Error("an idle cluster was written")
	}
	if got := s.cloud.Calls(fake.OpCreate); got != calls {
		t.Errorf("%d creations more", got-calls)
	}
}
