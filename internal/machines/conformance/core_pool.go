// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
