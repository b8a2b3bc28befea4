// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"maps"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// deleteForMoveAnnotation is what clusterctl puts in the place of all other
// annotations of an object that lives on in another management cluster.
const deleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

// keyOf returns the identity of an object. It is the UID that the object had
// when it was first seen: random, and known again where somebody has removed
// the annotation.
func keyOf(o metav1.Object) string {
	if key := o.GetAnnotations()[infrav1.KeyAnnotation]; key != "" {
		return key
	}
	return string(o.GetUID())
}

func beganOf(o metav1.Object) time.Time {
	text := o.GetAnnotations()[infrav1.BeganAnnotation]
	if text == "" {
		return time.Time{}
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at
	}
	// The start time is unknown: at the earliest when the object was created.
	return o.GetCreationTimestamp().Time
}

// annotate adds an annotation that an object does not have.
func annotate(o metav1.Object, key, value string) {
	if o.GetAnnotations()[key] == "" && value != "" {
		all := map[string]string{key: value}
		maps.Copy(all, o.GetAnnotations())
		all[key] = value
		o.SetAnnotations(all)
	}
}

// isMoved reports whether clusterctl has moved an object to another management
// cluster: then not even its conditions may be changed.
func isMoved(o metav1.Object) bool {
	_, moved := o.GetAnnotations()[deleteForMoveAnnotation]
	return moved
}

// external reports whether a cluster's infrastructure is externally managed.
// Cluster API's book has the mark as a label, its code as an annotation.
func external(o metav1.Object) bool {
	_, annotated := o.GetAnnotations()[clusterv1.ManagedByAnnotation]
	_, labelled := o.GetLabels()[clusterv1.ManagedByAnnotation]
	return annotated || labelled
}

func paused(cluster *clusterv1.Cluster, o metav1.Object) bool {
	if cluster != nil && cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		return true
	}
	_, annotated := o.GetAnnotations()[clusterv1.PausedAnnotation]
	return annotated
}

// ReasonIdentityTaken: the object is a copy of another, with its key.
const ReasonIdentityTaken = "IdentityTaken"

// original returns the object that o is a copy of: an older one of its kind with
// the same key. Somebody has applied the manifest of one under another name, or
// restored it in another namespace. What carries the key is not the copy's.
func original(ctx context.Context, c client.Reader, newList func() client.ObjectList, o client.Object) (name string, err error) {
	key := keyOf(o)
	if newList == nil || key == string(o.GetUID()) {
		return "", nil
	}
	list := newList()
	if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("look for another object with the key of %s: %w", o.GetName(), err)
	}
	return name, apimeta.EachListItem(list, func(r runtime.Object) error {
		other := r.(client.Object)
		if keyOf(other) == key && client.ObjectKeyFromObject(other) != client.ObjectKeyFromObject(o) && older(other, o) {
			name = client.ObjectKeyFromObject(other).String()
		}
		return nil
	})
}

func older(a, b client.Object) bool {
	was, is := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if string(a.GetUID()) == keyOf(a) || was.Before(&is) {
		return true
	}
	return was.Equal(&is) && a.GetUID() < b.GetUID()
}

// asCopy handles a copy: nothing is created for it, and nothing is removed with
// it.
func asCopy[T object](ctx context.Context, d *patcher[T], b Base, newList func() client.ObjectList, finalizer string) (isCopy bool, result reconcile.Result, err error) {
	name, err := original(ctx, d.client, newList, d.desired)
	if err != nil || name == "" {
		return false, result, err
	}
	if !d.desired.GetDeletionTimestamp().IsZero() {
		removeFinalizer(d.desired, finalizer)
		return true, result, d.saveIdentity(ctx)
	}
	setLife(d.desired)
	setFalse(d.desired, ProvisionedCondition, ReasonIdentityTaken,
		fmt.Sprintf("this is a copy of %s: make it without the annotation %s", name, infrav1.KeyAnnotation))
	summarize(d.desired, ProvisionedCondition)
	return true, reconcile.Result{RequeueAfter: b.Poll}, saveAndReport(ctx, d, b)
}
