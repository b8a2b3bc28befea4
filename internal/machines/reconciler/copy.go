// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

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
