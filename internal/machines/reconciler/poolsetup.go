// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Setup adds the reconciler to the manager; list is an empty one of the kind,
// machine an empty object of the kind of its machines.
func (r *PoolReconciler) Setup(mgr manager.Manager, list client.ObjectList, machine client.Object, w Watching) error {
	r.Complete()
	b, gvk, err := r.inClusters(mgr, r.New(), list, w)
	if err != nil {
		return err
	}
	return complete(b.
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(ofMachinePool(gvk.GroupKind())), builder.WithPredicates(specChanges())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofPoolMember(gvk.GroupKind())), builder.WithPredicates(comesOrGoes())).
		Watches(machine, handler.EnqueueRequestsFromMapFunc(ofPoolMachine(gvk))), r, gvk)
}

// ofMachinePool returns the infrastructure that a MachinePool names.
func ofMachinePool(kind schema.GroupKind) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		pool, ok := o.(*clusterv1.MachinePool)
		if !ok || pool.Spec.Template.Spec.InfrastructureRef.GroupKind() != kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pool.Namespace, Name: pool.Spec.Template.Spec.InfrastructureRef.Name}}}
	}
}

// ofPoolMember returns the infrastructure of the pool that a Machine is of.
func (r *PoolReconciler) ofPoolMember(kind schema.GroupKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		pool, err := ownerPool(ctx, r.Client, o)
		if err != nil || pool == nil {
			return nil // lost labels are restored when something else happens
		}
		return ofMachinePool(kind)(ctx, pool)
	}
}

// ofPoolMachine returns the infrastructure of the pool that a machine is of.
func ofPoolMachine(kind schema.GroupVersionKind) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		name := poolOf(o, kind)
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
	}
}

// comesOrGoes lets only creations and deletions pass.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}
