// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func needsPool(s *Subject) string {
	switch {
	case s.Objects.Pool == nil:
		return "the file has no infrastructure of a machine pool"
	case s.CoreRuns:
		return "core does nothing for a machine pool before it reaches the API server of the pool's cluster, and there is none"
	}
	return ""
}

// addPool makes a MachinePool, its infrastructure and its bootstrap data.
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

// untilPool waits for a pool with so many machines.
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

// pool makes a cluster with a pool and waits for its machines.
func (r *run) pool(replicas int32) (fx *fixture, name string) {
	fx, name = r.newFixture(), "p-"+unique()
	fx.addCluster(nil)
	fx.addPool(name, replicas)
	fx.untilPool(name, int(replicas))
	return fx, name
}

func checkPoolProvisioned(r *run) {
	fx, name := r.newFixture(), "p-"+unique()
	h := fx.record(fx.Objects.Pool)
	fx.addCluster(nil)
	fx.addPool(name, 2)
	fx.untilPool(name, 2)
	fx.settle(fx.poolReader(name))
	fx.wantForEver(h)
}

// checkPoolReady: the contract asks for status.initialization.provisioned, and
// core looks at this only.
func checkPoolReady(r *run) {
	fx, name := r.pool(1)
	fx.until(fx.Limits.Provision, "status.ready of the InfraMachinePool, which is what core looks at, is true", func() string {
		pool := fx.poolReader(name)()
		if ready, _, _ := unstructured.NestedBool(pool.Object, "status", "ready"); !ready {
			return "it is not"
		}
		return ""
	})
}

func checkPoolScale(r *run) {
	fx, name := r.pool(1)
	for _, want := range []int32{2, 1} {
		mp := &clusterv1.MachinePool{}
		fx.patch(mp, name, func() { mp.Spec.Replicas = &want })
		fx.untilPool(name, int(want))
	}
}

func checkPoolQuiet(r *run) {
	fx, name := r.pool(1)
	fx.wantQuiet("InfraMachinePool", fx.poolReader(name))
}

func checkPoolPaused(r *run) {
	fx, name := r.pausedCluster(), "p-"+unique()
	made := fx.addPool(name, 1, func(o client.Object) { fx.ownedBy(&clusterv1.MachinePool{}, name, o) })
	fx.wantUntouched("while the Cluster is paused (spec.paused)", made)
}

func checkPoolDelete(r *run) {
	fx, name := r.pool(1)
	fx.delete(&clusterv1.MachinePool{}, name)
	fx.untilGone("the InfraMachinePool", name, fx.poolReader(name))
	fx.wantNothingOutside()
}
