// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
)

// watchOperands enqueues what requests returns for the inventory of an applied object.
func watchOperands(b *builder.Builder, requests func(owner string) []reconcile.Request) {
	wake := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requests(o.GetAnnotations()[apply.OwnerAnnotation])
	})
	for _, gvk := range apply.Kinds() {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(gvk)
		b.Watches(o, wake, builder.WithPredicates(changed()))
	}
}

// ownedBy enqueues the singleton request for the objects in a deployer's inventory.
func ownedBy(d *Deployer) func(owner string) []reconcile.Request {
	return func(owner string) []reconcile.Request {
		if owner != d.Inventory.String() {
			return nil
		}
		return []reconcile.Request{{NamespacedName: cluster}}
	}
}

// changed drops updates without a change: an object written as it was, or only
// with other managedFields.
func changed() predicate.Predicate {
	return changedBut(func(client.Object) {})
}

// userChanges drops the operator's own status updates of a CloudControllerManager.
// Otherwise it would never rest when they differ each time: with API servers of two
// patches that answer in turn, or errors with a time in them.
func userChanges() predicate.Predicate {
	return changedBut(func(o client.Object) {
		if m, ok := o.(*ccmv1alpha1.CloudControllerManager); ok {
			m.Status = ccmv1alpha1.CloudControllerManagerStatus{}
		}
	})
}

// changedBut is changed, except for what drop removes from an object.
func changedBut(drop func(client.Object)) predicate.Predicate {
	rest := func(o client.Object) client.Object {
		c := o.DeepCopyObject().(client.Object)
		c.SetResourceVersion("")
		c.SetManagedFields(nil)
		drop(c)
		return c
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !reflect.DeepEqual(rest(e.ObjectOld), rest(e.ObjectNew))
	}}
}

// unseen records why a watch fails. The library retries for ever, and at last
// only reports a time-out.
type unseen struct{ last atomic.Pointer[error] }

func (u *unseen) note(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		u.last.Store(&err) // others pass by themselves
	}
}

// because adds the reason to the error with which an operator ends, if it ends
// with one.
func (u *unseen) because(err error) error {
	if why := u.last.Load(); err != nil && why != nil {
		return fmt.Errorf("%w: a watch failed last with: %w", err, *why)
	}
	return err
}
