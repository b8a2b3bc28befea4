// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// playPool plays core's part in a machine pool.
func (p *fixture) playPool(ctx context.Context, mp *clusterv1.MachinePool) {
	infra := empty(p.Objects.Pool.GroupVersionKind())
	there := p.Client.Get(ctx, p.key(mp.Name), infra) == nil
	switch {
	case !mp.DeletionTimestamp.IsZero() && !there:
		p.release(ctx, mp, clusterv1.MachinePoolFinalizer)
	case !there:
	case !mp.DeletionTimestamp.IsZero():
		if infra.GetDeletionTimestamp().IsZero() {
			p.Client.Delete(ctx, infra)
		}
	default:
		p.setOwner(ctx, mp, infra)
		if kind := text(infra, "status", "infrastructureMachineKind"); kind != "" {
			gvk := infra.GroupVersionKind()
			gvk.Kind = kind
			p.each(ctx, listOf(empty(gvk)), func(o client.Object) { p.playMember(ctx, mp, o) })
		}
	}
}

// playMember makes the Machine of a pool's machine.
func (p *fixture) playMember(ctx context.Context, mp *clusterv1.MachinePool, infra client.Object) {
	labels := infra.GetLabels()
	if labels[clusterv1.MachinePoolNameLabel] != format.MustFormatValue(mp.Name) || labels[clusterv1.ClusterNameLabel] != mp.Spec.ClusterName || !infra.GetDeletionTimestamp().IsZero() {
		return
	}
	gvk, none := infra.GetObjectKind().GroupVersionKind(), ""
	m := &clusterv1.Machine{}
	if p.Client.Get(ctx, p.key(infra.GetName()), m) == nil {
		return
	}
	m.Namespace, m.Name = p.namespace, infra.GetName()
	m.Labels = map[string]string{clusterv1.MachinePoolNameLabel: labels[clusterv1.MachinePoolNameLabel], clusterv1.ClusterNameLabel: p.cluster}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(mp, clusterv1.GroupVersion.WithKind("MachinePool"))}
	m.Finalizers = []string{clusterv1.MachineFinalizer}
	m.Spec.ClusterName, m.Spec.Bootstrap.DataSecretName = p.cluster, &none
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: gvk.Group, Kind: gvk.Kind, Name: m.Name}
	p.Client.Create(ctx, m) // a conflict is seen the next time
}

// removePools deletes the pools, whose machines nobody drains any more.
func (p *fixture) removePools(ctx context.Context) string {
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &clusterv1.MachinePoolList{}} {
		p.each(ctx, list, func(o client.Object) { p.vanish(ctx, o, o.GetName()) })
	}
	return p.remove(ctx, p.Objects.Pool)
}
