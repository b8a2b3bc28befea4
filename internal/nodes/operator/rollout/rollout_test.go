// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func deployment(generation, observed int64, status corev1.ConditionStatus, reason string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n", Generation: generation}}
	d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas = observed, 2, 2
	if reason != "" {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason}}
	}
	return d
}

// pods sets how many there are, and how many of them are new.
func pods(d *appsv1.Deployment, wanted, all, updated, available int32) *appsv1.Deployment {
	d.Spec.Replicas = &wanted
	d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = all, updated, available
	return d
}

func TestDeployment(t *testing.T) {
	for name, c := range map[string]struct {
		d             *appsv1.Deployment
		done, stalled bool
	}{
		"no conditions":             {d: deployment(2, 2, "", "")},
		"lagging generation":        {d: deployment(2, 1, corev1.ConditionTrue, "NewReplicaSetAvailable")},
		"updated":                   {d: deployment(2, 2, corev1.ConditionTrue, "ReplicaSetUpdated")},
		"found":                     {d: deployment(2, 2, corev1.ConditionTrue, "FoundNewReplicaSet")},
		"done":                      {d: deployment(2, 2, corev1.ConditionTrue, "NewReplicaSetAvailable"), done: true},
		"Recreate removes":          {d: pods(deployment(2, 2, corev1.ConditionTrue, "NewReplicaSetAvailable"), 2, 1, 0, 0)},
		"Recreate has removed":      {d: pods(deployment(2, 2, corev1.ConditionTrue, "NewReplicaSetAvailable"), 2, 0, 0, 0)},
		"an old one is there":       {d: pods(deployment(2, 2, corev1.ConditionTrue, "NewReplicaSetAvailable"), 2, 3, 2, 2)},
		"a node is gone":            {d: pods(deployment(2, 2, corev1.ConditionTrue, "NewReplicaSetAvailable"), 2, 1, 1, 0), done: true},
		"none wanted":               {d: pods(deployment(2, 2, corev1.ConditionTrue, "NewReplicaSetAvailable"), 0, 0, 0, 0), done: true},
		"deadline":                  {d: deployment(2, 2, corev1.ConditionFalse, "ProgressDeadlineExceeded"), stalled: true},
		"deadline of an older one":  {d: deployment(3, 2, corev1.ConditionFalse, "ProgressDeadlineExceeded")},
		"false for another reason":  {d: deployment(2, 2, corev1.ConditionFalse, "ReplicaSetCreateError")},
		"paused: unknown condition": {d: deployment(2, 2, corev1.ConditionUnknown, "DeploymentPaused")},
	} {
		wait, err := Deployment(c.d)
		if done := wait == "" && err == nil; done != c.done {
			t.Errorf("%s: waits for %q (%v), want done %t", name, wait, err, c.done)
		}
		if errors.Is(err, ErrStalled) != c.stalled {
			t.Errorf("%s: error %v, want stalled %t", name, err, c.stalled)
		}
	}
	if _, err := Deployment(deployment(1, 1, corev1.ConditionFalse, "ProgressDeadlineExceeded")); err.Error() != "deployment d rollout stalled: ProgressDeadlineExceeded" {
		t.Errorf("message %q", err)
	}
}

func TestDaemonSet(t *testing.T) {
	for name, c := range map[string]struct {
		generation int64
		status     appsv1.DaemonSetStatus
		done       bool
	}{
		"lagging generation": {2, appsv1.DaemonSetStatus{ObservedGeneration: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1}, false},
		"none scheduled":     {1, appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1}, false},
		"half updated":       {1, appsv1.DaemonSetStatus{ObservedGeneration: 1, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 1}, false},
		"unavailable":        {1, appsv1.DaemonSetStatus{ObservedGeneration: 1, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberUnavailable: 2}, true},
		"misscheduled":       {1, appsv1.DaemonSetStatus{ObservedGeneration: 1, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberMisscheduled: 1}, true},
		"a node more":        {1, appsv1.DaemonSetStatus{ObservedGeneration: 1, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, DesiredNumberScheduled: 3}, true},
	} {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: c.generation}, Status: c.status}
		if wait := DaemonSet(d); (wait == "") != c.done {
			t.Errorf("%s: waits for %q, want done %t", name, wait, c.done)
		}
	}
}

func TestWaitsForWhatIsNotThere(t *testing.T) {
	done := deployment(1, 1, corev1.ConditionTrue, "NewReplicaSetAvailable")
	reader := fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(done).Build()
	waits, err := Waits(t.Context(), reader, scheme.Scheme, []client.Object{
		done, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "missing", Namespace: "n"}}, &corev1.ConfigMap{},
	})
	if err != nil || len(waits) != 1 || waits[0] != "DaemonSet n/missing is not there yet" {
		t.Fatalf("waits %q, error %v", waits, err)
	}
}
