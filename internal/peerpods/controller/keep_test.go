// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

func TestAdoptsAfterAWhile(t *testing.T) {
	s := newStand(t, nil)
	pp, i := s.claim("web", "s1"), s.create("web", "s1")
	if result, err := s.reconcile(pp); err != nil || result.RequeueAfter <= 0 {
		t.Fatalf("young: %+v, %v; want to wait for the node", result, err)
	}
	s.sweep(3 * time.Minute)
	if s.queue.Len() == 0 {
		t.Fatal("the sweep does not hand over what it found")
	}
	if _, err := s.reconcile(pp); err != nil {
		t.Fatal(err)
	}
	now, err := s.get(pp)
	if err != nil {
		t.Fatal(err)
	}
	if now.Spec.InstanceID != i.ID || now.Status.Phase != v1alpha1.PhaseConnecting || len(now.Status.Instance.Addresses) == 0 ||
		now.Status.Instance.Type == "" || now.Status.Instance.Zone != "fake-zone" {
		t.Errorf("spec %+v, status %+v", now.Spec, now.Status)
	}
	s.events.want(t, "Pod/web Normal Adopted", i.ID)
}

func TestAYoungerSandboxReplacesTheOlder(t *testing.T) {
	s := newStand(t, nil)
	old, _ := s.run("web", "s1")
	s.clock.advance(time.Hour)
	young, keep := s.run("web", "s2")
	if _, err := s.reconcile(young); err != nil {
		t.Fatal(err)
	}
	s.settle(old)
	s.gone(old)
	s.wantInstances(keep)
}

// TestAYoungerSandboxThatIsNotReadyReplacesNothing: it may never be.
func TestAYoungerSandboxThatIsNotReadyReplacesNothing(t *testing.T) {
	s := newStand(t, nil)
	old, keep := s.run("web", "s1")
	s.clock.advance(time.Hour)
	young := s.claim("web", "s2")
	if _, err := s.reconcile(young); err != nil {
		t.Fatal(err)
	}
	if now, err := s.get(old); err != nil || now.DeletionTimestamp != nil {
		t.Errorf("replaced: %v", err)
	}
	s.wantInstances(keep)
}

func TestNodeAndPodGone(t *testing.T) {
	s := newStand(t, nil)
	pp, _ := s.run("web", "s1")
	kept, i := s.run("db", "s2")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "uid-db"}}
	if err := s.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := s.reconcile(pp); err != nil {
		t.Fatal(err)
	}
	if now, err := s.get(pp); err != nil || now.DeletionTimestamp != nil {
		t.Fatalf("deleted while its node is there: %v", err)
	}
	if err := s.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}); err != nil {
		t.Fatal(err)
	}
	s.sweep(time.Minute)
	if s.queue.Len() != 2 {
		t.Errorf("%d PeerPods queued after their node went, want 2", s.queue.Len())
	}
	for _, one := range []*v1alpha1.PeerPod{pp, kept} {
		if _, err := s.reconcile(one); err != nil {
			t.Fatal(err)
		}
	}
	s.settle(pp)
	s.gone(pp)
	if now, err := s.get(kept); err != nil || now.DeletionTimestamp != nil {
		t.Errorf("the PeerPod of a pod that is there was deleted: %v", err)
	}
	s.wantInstances(i)
	s.events.want(t, "PeerPod/"+pp.Name+" Warning NodeLost", "worker")
}

func TestFinalizerComesBack(t *testing.T) {
	s := newStand(t, nil)
	pp, _ := s.run("web", "s1")
	pp.Finalizers = []string{"other/finalizer"}
	if err := s.client.Update(t.Context(), pp); err != nil {
		t.Fatal(err)
	}
	if _, err := s.reconcile(pp); err != nil {
		t.Fatal(err)
	}
	now, err := s.get(pp)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"other/finalizer", claims.Finalizer}; !slices.Equal(now.Finalizers, want) {
		t.Errorf("finalizers %v, want %v", now.Finalizers, want)
	}
}

func TestProvidersThatCannotListAreMentioned(t *testing.T) {
	s := newStand(t, hide("Lister"))
	pp, _ := s.run("web", "s1")
	for range 2 {
		if _, err := s.reconcile(pp); err != nil {
			t.Fatal(err)
		}
	}
	now, err := s.get(pp)
	if err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionListed)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != claims.ReasonProviderCannotList {
		t.Errorf("condition %+v", c)
	}
}

// TestSteadyStateWritesNothing: a PeerPod that is right costs no API call.
func TestSteadyStateWritesNothing(t *testing.T) {
	s := newStand(t, nil)
	pp, _ := s.run("web", "s1")
	before, err := s.get(pp)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if result, err := s.reconcile(pp); err != nil || result.RequeueAfter != 0 {
			t.Fatal(result, err)
		}
		s.sweep(10 * time.Minute)
	}
	after, err := s.get(pp)
	if err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("version %s became %s: %v", before.ResourceVersion, after.ResourceVersion, err)
	}
}
