// SPDX-License-Identifier: Apache-2.0

// Package rollout reports how far the rollouts of Deployments and DaemonSets
// are. It reads what their controllers report, never versions of objects: a
// changed label is not a rollout.
package rollout

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Reasons of a Deployment's condition Progressing
// (k8s.io/kubernetes/pkg/controller/deployment/util).
const (
	newReplicaSetAvailable   = "NewReplicaSetAvailable"
	progressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// ErrStalled means that the controller gave up on a rollout.
var ErrStalled = errors.New("rollout stalled")

// Waits returns each workload among the objects that is not yet rolled out,
// with the reason. Rollouts that stalled are joined into the error, which is
// ErrStalled.
func Waits(ctx context.Context, reader client.Reader, scheme *runtime.Scheme, objects []client.Object) (waits []string, err error) {
	var failed []error
	for _, o := range objects {
		wait, err := waitsFor(ctx, reader, scheme, o)
		if err != nil {
			failed = append(failed, err)
		} else if wait != "" {
			waits = append(waits, wait)
		}
	}
	return waits, errors.Join(failed...)
}

func waitsFor(ctx context.Context, reader client.Reader, scheme *runtime.Scheme, o client.Object) (string, error) {
	gvk, err := apiutil.GVKForObject(o, scheme)
	if err != nil || gvk.Group != appsv1.GroupName {
		return "", err
	}
	key := client.ObjectKeyFromObject(o)
	// It is read without a type, as whoever applies does: one cache serves both.
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	err = reader.Get(ctx, key, u)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("%s %s is not there yet", gvk.Kind, key), nil
	}
	if err != nil {
		return "", err
	}
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	if gvk.Kind == "DaemonSet" {
		var d appsv1.DaemonSet
		err := convert(u.Object, &d)
		return DaemonSet(&d), err
	}
	var d appsv1.Deployment
	if err := convert(u.Object, &d); err != nil {
		return "", err
	}
	return Deployment(&d)
}

// Deployment returns why a Deployment is not yet rolled out; empty when it is.
func Deployment(d *appsv1.Deployment) (wait string, err error) {
	if d.Status.ObservedGeneration < d.Generation {
		return fmt.Sprintf("Deployment %s: its controller has seen generation %d of %d", d.Name, d.Status.ObservedGeneration, d.Generation), nil
	}
	for _, c := range d.Status.Conditions {
		if c.Type != appsv1.DeploymentProgressing {
			continue
		}
		switch {
		case c.Status == corev1.ConditionTrue && c.Reason == newReplicaSetAvailable && replaced(d):
			return "", nil
		case c.Status == corev1.ConditionFalse && c.Reason == progressDeadlineExceeded:
			return "", fmt.Errorf("deployment %s %w: %s", d.Name, ErrStalled, c.Reason)
		}
		return fmt.Sprintf("Deployment %s: %s: %d of %d pods updated, %d available",
			d.Name, c.Reason, d.Status.UpdatedReplicas, d.Status.Replicas, d.Status.AvailableReplicas), nil
	}
	return fmt.Sprintf("Deployment %s: its controller has not reported yet", d.Name), nil
}

// replaced reports whether there are new pods and no old ones. The reason alone is that of
// the rollout before for as long as a Recreate removes pods. Pods that are missing or
// unavailable beside others do not count: nodes come and go all the time.
func replaced(d *appsv1.Deployment) bool {
	none := d.Spec.Replicas != nil && *d.Spec.Replicas == 0
	return d.Status.Replicas == d.Status.UpdatedReplicas && (d.Status.UpdatedReplicas > 0 || none)
}

// DaemonSet returns why a DaemonSet is not yet rolled out; empty when it is.
// Pods that are unavailable, on the wrong node or still to come on a new node
// do not count: nodes come and go all the time.
func DaemonSet(d *appsv1.DaemonSet) (wait string) {
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return fmt.Sprintf("DaemonSet %s: its controller has seen generation %d of %d", d.Name, s.ObservedGeneration, d.Generation)
	case s.CurrentNumberScheduled == 0:
		return fmt.Sprintf("DaemonSet %s: no pod is scheduled", d.Name)
	case s.UpdatedNumberScheduled < s.CurrentNumberScheduled:
		return fmt.Sprintf("DaemonSet %s: %d of %d pods updated", d.Name, s.UpdatedNumberScheduled, s.CurrentNumberScheduled)
	}
	return ""
}
