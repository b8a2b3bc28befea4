// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var poolChecks = []Check{
	{"pool-fields", "InfraMachinePool has the fields that core reads: spec.providerIDList, status.initialization.provisioned, status.replicas.", []need{needsPool, needsNoCore}, checkFields("machine-pool", poolFields)},
	{"pool-provisioned", "An InfraMachinePool with bootstrap data gets its machines, in spec.providerIDList and status.replicas, and status.initialization.provisioned, for ever.", []need{needsPool, needsNoCore}, func(r *run) {
		fx, name := r.newFixture(), "p-"+unique()
		h := fx.record(fx.Objects.Pool)
		fx.addCluster(nil)
		fx.addPool(name, 2)
		fx.untilPool(name, 2)
		fx.settle(fx.poolReader(name))
		fx.wantForEver(h)
	}},
	{"pool-ready", "An InfraMachinePool that is provisioned has status.ready too, which is what core reads.", []need{needsPool, needsNoCore}, func(r *run) {
		// The contract asks for status.initialization.provisioned, and core looks at this only.
		fx, name := r.pool(1)
		fx.until(fx.Limits.Provision, "status.ready of the InfraMachinePool, which is what core looks at, is true", func() string {
			pool := fx.poolReader(name)()
			if ready, _, _ := unstructured.NestedBool(pool.Object, "status", "ready"); !ready {
				return "it is not"
			}
			return ""
		})
	}},
	{"pool-scale", "spec.providerIDList and status.replicas of an InfraMachinePool follow MachinePool.spec.replicas, up and down.", []need{needsPool, needsNoCore}, func(r *run) {
		fx, name := r.pool(1)
		for _, want := range []int32{2, 1} {
			mp := &clusterv1.MachinePool{}
			fx.patch(mp, name, func() { mp.Spec.Replicas = &want })
			fx.untilPool(name, int(want))
		}
	}},
	{"pool-quiet", "An InfraMachinePool that is provisioned is not written while nothing changes.", []need{needsPool, needsNoCore}, func(r *run) {
		fx, name := r.pool(1)
		fx.wantQuiet("InfraMachinePool", fx.poolReader(name))
	}},
	{"pool-pause", "While Cluster.spec.paused is set nothing but the condition Paused of an InfraMachinePool is written.", []need{needsPool, needsNoCore}, func(r *run) {
		fx, name := r.pausedCluster(), "p-"+unique()
		made := fx.addPool(name, 1, func(o client.Object) { fx.ownedBy(&clusterv1.MachinePool{}, name, o) })
		fx.wantUntouched("while the Cluster is paused (spec.paused)", made)
	}},
	{"pool-delete", "An InfraMachinePool that is deleted goes, and leaves nothing.", []need{needsPool, needsNoCore}, func(r *run) {
		fx, name := r.pool(1)
		fx.delete(&clusterv1.MachinePool{}, name)
		fx.untilGone("the InfraMachinePool", name, fx.poolReader(name))
		fx.wantNothingOutside()
	}},
}

func (fx *fixture) addPool(name string, replicas int32, ofInfra ...change) *unstructured.Unstructured {
	fx.addSecret(name)
	mp := &clusterv1.MachinePool{}
	mp.Namespace, mp.Name, mp.Labels = fx.namespace, name, map[string]string{clusterv1.ClusterNameLabel: fx.cluster}
	mp.Spec.ClusterName, mp.Spec.Replicas = fx.cluster, &replicas
	template := &mp.Spec.Template.Spec
	template.ClusterName, template.Version = fx.cluster, "v1.36.0"
	template.InfrastructureRef = refTo(fx.Objects.Pool, name)
	template.Bootstrap.DataSecretName = &name
	mp.Finalizers = []string{clusterv1.MachinePoolFinalizer}
	fx.create(mp)
	return fx.addInfra(fx.Objects.Pool, name, ofInfra)
}

func (fx *fixture) poolReader(name string) func() *unstructured.Unstructured {
	return func() *unstructured.Unstructured { return fx.read(fx.Objects.Pool, name) }
}

func (fx *fixture) untilPool(name string, replicas int) {
	fx.until(fx.Limits.Provision, fmt.Sprintf("the InfraMachinePool has %d machines", replicas), func() string {
		pool := fx.poolReader(name)()
		if missing := fx.lacksProvisioned(pool); missing != "" {
			return missing
		}
		ids, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "providerIDList")
		there, _, _ := unstructured.NestedInt64(pool.Object, "status", "replicas")
		if len(ids) != replicas || there != int64(replicas) {
			return fmt.Sprintf("status.replicas is %d, spec.providerIDList has %d: %v; %s", there, len(ids), ids, describe(pool))
		}
		return ""
	})
}

func (r *run) pool(replicas int32) (fx *fixture, name string) {
	fx, name = r.newFixture(), "p-"+unique()
	fx.addCluster(nil)
	fx.addPool(name, replicas)
	fx.untilPool(name, int(replicas))
	return fx, name
}
