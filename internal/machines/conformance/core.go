// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// play does once what Cluster API's core does in the place: it owns, it copies,
// it deletes in order. Errors are conflicts: the next attempt will succeed.
func (p *fixture) play(ctx context.Context) {
	cluster := &clusterv1.Cluster{}
	there := p.Client.Get(ctx, p.key(p.cluster), cluster) == nil
	if there && cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		return
	}
	if there {
		p.playCluster(ctx, cluster)
	}
	if p.Objects.Pool != nil {
		p.each(ctx, &clusterv1.MachinePoolList{}, func(o client.Object) { p.playPool(ctx, o.(*clusterv1.MachinePool)) })
	}
	p.each(ctx, &clusterv1.MachineList{}, func(o client.Object) { p.playMachine(ctx, o.(*clusterv1.Machine)) })
}

// each calls f for every object of the place.
func (p *fixture) each(ctx context.Context, list client.ObjectList, f func(client.Object)) {
	if err := p.Client.List(ctx, list, client.InNamespace(p.namespace)); err != nil {
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

func (p *fixture) playCluster(ctx context.Context, cluster *clusterv1.Cluster) {
	infra := empty(p.Objects.Cluster.GroupVersionKind())
	there := p.Client.Get(ctx, p.key(p.cluster), infra) == nil
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		p.endCluster(ctx, cluster, infra, there)
	case there:
		p.setOwner(ctx, cluster, infra)
		if provisioned(infra) {
			p.copyCluster(ctx, cluster, infra)
		}
	}
}

// endCluster deletes machines, then the infrastructure, then the Cluster
// itself.
func (p *fixture) endCluster(ctx context.Context, cluster *clusterv1.Cluster, infra client.Object, there bool) {
	machines := 0
	p.each(ctx, &clusterv1.MachineList{}, func(o client.Object) {
		machines++
		if o.GetDeletionTimestamp().IsZero() {
			p.Client.Delete(ctx, o)
		}
	})
	switch {
	case machines > 0:
	case there && infra.GetDeletionTimestamp().IsZero():
		p.Client.Delete(ctx, infra)
	case !there:
		p.release(ctx, cluster, clusterv1.ClusterFinalizer)
	}
}

func (p *fixture) release(ctx context.Context, o client.Object, finalizer string) {
	before := o.DeepCopyObject().(client.Object)
	if controllerutil.RemoveFinalizer(o, finalizer) {
		p.Client.Patch(ctx, o, client.MergeFrom(before))
	}
}

// setOwner makes an object the infrastructure of its owner.
func (p *fixture) setOwner(ctx context.Context, owner client.Object, infra *unstructured.Unstructured) {
	before := infra.DeepCopy()
	if err := controllerutil.SetOwnerReference(owner, infra, p.Client.Scheme()); err != nil || len(before.GetOwnerReferences()) == len(infra.GetOwnerReferences()) {
		return
	}
	p.Client.Patch(ctx, infra, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (p *fixture) copyCluster(ctx context.Context, cluster *clusterv1.Cluster, infra *unstructured.Unstructured) {
	if endpoint := endpointOf(infra); cluster.Spec.ControlPlaneEndpoint.IsZero() && endpoint.IsValid() {
		before := cluster.DeepCopy()
		cluster.Spec.ControlPlaneEndpoint = endpoint
		p.Client.Patch(ctx, cluster, client.MergeFrom(before))
	}
	if is := cluster.Status.Initialization.InfrastructureProvisioned; is == nil || !*is {
		before, yes := cluster.DeepCopy(), true
		cluster.Status.Initialization.InfrastructureProvisioned = &yes
		p.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))
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

func (p *fixture) playMachine(ctx context.Context, m *clusterv1.Machine) {
	gvk := p.Objects.Machine.GroupVersionKind()
	gvk.Kind = m.Spec.InfrastructureRef.Kind
	infra := empty(gvk)
	there := p.Client.Get(ctx, p.key(m.Name), infra) == nil
	switch {
	case !m.DeletionTimestamp.IsZero() && !there:
		p.release(ctx, m, clusterv1.MachineFinalizer)
	case !there:
	case !m.DeletionTimestamp.IsZero():
		if infra.GetDeletionTimestamp().IsZero() {
			p.Client.Delete(ctx, infra)
		}
	default:
		p.setOwner(ctx, m, infra)
		p.copyMachine(ctx, m, infra)
	}
}

func (p *fixture) copyMachine(ctx context.Context, m *clusterv1.Machine, infra *unstructured.Unstructured) {
	id := providerID(infra)
	if !provisioned(infra) || id == "" || m.Spec.ProviderID != "" {
		return
	}
	before := m.DeepCopy()
	m.Spec.ProviderID = id
	p.Client.Patch(ctx, m, client.MergeFrom(before))
}
