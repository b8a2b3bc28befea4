// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// play does once what Cluster API's core does in the place: it owns, it copies,
// it deletes in order. Errors are conflicts: the next attempt will succeed.
func (fx *fixture) play(ctx context.Context) {
	cluster := &clusterv1.Cluster{}
	there := fx.Client.Get(ctx, fx.key(fx.cluster), cluster) == nil
	if there && cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		return
	}
	if there {
		fx.playCluster(ctx, cluster)
	}
	if fx.Objects.Pool != nil {
		fx.each(ctx, &clusterv1.MachinePoolList{}, func(o client.Object) { fx.playPool(ctx, o.(*clusterv1.MachinePool)) })
	}
	fx.each(ctx, &clusterv1.MachineList{}, func(o client.Object) {
		m, gvk := o.(*clusterv1.Machine), fx.Objects.Machine.GroupVersionKind()
		gvk.Kind = m.Spec.InfrastructureRef.Kind
		fx.playOwner(ctx, m, clusterv1.MachineFinalizer, gvk, func(infra *unstructured.Unstructured) { fx.copyMachine(ctx, m, infra) })
	})
}

// each calls f for every object of the place.
func (fx *fixture) each(ctx context.Context, list client.ObjectList, f func(client.Object)) {
	if err := fx.Client.List(ctx, list, client.InNamespace(fx.namespace)); err != nil {
		return
	}
	meta.EachListItem(list, func(o runtime.Object) error {
		f(o.(client.Object))
		return nil
	})
}

func listOf(kind *unstructured.Unstructured) client.ObjectList {
	list := &unstructured.UnstructuredList{}
	gvk := kind.GroupVersionKind()
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	return list
}

func (fx *fixture) playCluster(ctx context.Context, cluster *clusterv1.Cluster) {
	infra := empty(fx.Objects.Cluster.GroupVersionKind())
	there := fx.Client.Get(ctx, fx.key(fx.cluster), infra) == nil
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		fx.endCluster(ctx, cluster, infra, there)
	case there:
		fx.setOwner(ctx, cluster, infra)
		if provisioned(infra) {
			fx.copyCluster(ctx, cluster, infra)
		}
	}
}

// endCluster deletes machines, then the infrastructure, then the Cluster
// itself.
func (fx *fixture) endCluster(ctx context.Context, cluster *clusterv1.Cluster, infra client.Object, there bool) {
	machines := 0
	fx.each(ctx, &clusterv1.MachineList{}, func(o client.Object) {
		machines++
		if o.GetDeletionTimestamp().IsZero() {
			fx.Client.Delete(ctx, o)
		}
	})
	switch {
	case machines > 0:
	case there && infra.GetDeletionTimestamp().IsZero():
		fx.Client.Delete(ctx, infra)
	case !there:
		fx.release(ctx, cluster, clusterv1.ClusterFinalizer)
	}
}

func (fx *fixture) release(ctx context.Context, o client.Object, finalizer string) {
	before := o.DeepCopyObject().(client.Object)
	if controllerutil.RemoveFinalizer(o, finalizer) {
		fx.Client.Patch(ctx, o, client.MergeFrom(before))
	}
}

// setOwner makes an object the infrastructure of its owner.
func (fx *fixture) setOwner(ctx context.Context, owner client.Object, infra *unstructured.Unstructured) {
	before := infra.DeepCopy()
	if err := controllerutil.SetOwnerReference(owner, infra, fx.Client.Scheme()); err != nil || len(before.GetOwnerReferences()) == len(infra.GetOwnerReferences()) {
		return
	}
	fx.Client.Patch(ctx, infra, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (fx *fixture) copyCluster(ctx context.Context, cluster *clusterv1.Cluster, infra *unstructured.Unstructured) {
	if endpoint := endpointOf(infra); cluster.Spec.ControlPlaneEndpoint.IsZero() && endpoint.IsValid() {
		before := cluster.DeepCopy()
		cluster.Spec.ControlPlaneEndpoint = endpoint
		fx.Client.Patch(ctx, cluster, client.MergeFrom(before))
	}
	if is := cluster.Status.Initialization.InfrastructureProvisioned; is == nil || !*is {
		before := cluster.DeepCopy()
		cluster.Status.Initialization.InfrastructureProvisioned = new(true)
		fx.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))
	}
}

func endpointOf(infra *unstructured.Unstructured) clusterv1.APIEndpoint {
	host := text(infra, "spec", "controlPlaneEndpoint", "host")
	port, _, _ := unstructured.NestedInt64(infra.Object, "spec", "controlPlaneEndpoint", "port")
	if port < 0 || port > 65535 {
		port = 0
	}
	return clusterv1.APIEndpoint{Host: host, Port: int32(port)}
}

// playOwner owns the infrastructure of a Machine or MachinePool, and works on it, or deletes both.
func (fx *fixture) playOwner(ctx context.Context, owner client.Object, finalizer string, gvk schema.GroupVersionKind, work func(infra *unstructured.Unstructured)) {
	infra := empty(gvk)
	there := fx.Client.Get(ctx, fx.key(owner.GetName()), infra) == nil
	switch deleting := !owner.GetDeletionTimestamp().IsZero(); {
	case deleting && !there:
		fx.release(ctx, owner, finalizer)
	case !there:
	case deleting:
		if infra.GetDeletionTimestamp().IsZero() {
			fx.Client.Delete(ctx, infra)
		}
	default:
		fx.setOwner(ctx, owner, infra)
		work(infra)
	}
}

func (fx *fixture) copyMachine(ctx context.Context, m *clusterv1.Machine, infra *unstructured.Unstructured) {
	id := providerID(infra)
	if !provisioned(infra) || id == "" || m.Spec.ProviderID != "" {
		return
	}
	before := m.DeepCopy()
	m.Spec.ProviderID = id
	fx.Client.Patch(ctx, m, client.MergeFrom(before))
}

func (fx *fixture) playPool(ctx context.Context, mp *clusterv1.MachinePool) {
	gvk := fx.Objects.Pool.GroupVersionKind()
	fx.playOwner(ctx, mp, clusterv1.MachinePoolFinalizer, gvk, func(infra *unstructured.Unstructured) {
		if gvk.Kind = text(infra, "status", "infrastructureMachineKind"); gvk.Kind != "" {
			fx.each(ctx, listOf(empty(gvk)), func(o client.Object) { fx.playMember(ctx, mp, o) })
		}
	})
}

func (fx *fixture) playMember(ctx context.Context, mp *clusterv1.MachinePool, infra client.Object) {
	labels := infra.GetLabels()
	if labels[clusterv1.MachinePoolNameLabel] != format.MustFormatValue(mp.Name) || labels[clusterv1.ClusterNameLabel] != mp.Spec.ClusterName || !infra.GetDeletionTimestamp().IsZero() {
		return
	}
	gvk, none := infra.GetObjectKind().GroupVersionKind(), ""
	m := &clusterv1.Machine{}
	if fx.Client.Get(ctx, fx.key(infra.GetName()), m) == nil {
		return
	}
	m.Namespace, m.Name = fx.namespace, infra.GetName()
	m.Labels = map[string]string{clusterv1.MachinePoolNameLabel: labels[clusterv1.MachinePoolNameLabel], clusterv1.ClusterNameLabel: fx.cluster}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(mp, clusterv1.GroupVersion.WithKind("MachinePool"))}
	m.Finalizers = []string{clusterv1.MachineFinalizer}
	m.Spec.ClusterName, m.Spec.Bootstrap.DataSecretName = fx.cluster, &none
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: gvk.Group, Kind: gvk.Kind, Name: m.Name}
	fx.Client.Create(ctx, m) // a conflict is seen the next time
}

// removePools deletes the pools, whose machines nobody drains any more.
func (fx *fixture) removePools(ctx context.Context) string {
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &clusterv1.MachinePoolList{}} {
		fx.each(ctx, list, func(o client.Object) { fx.vanish(ctx, o, o.GetName()) })
	}
	return fx.remove(ctx, fx.Objects.Pool)
}
