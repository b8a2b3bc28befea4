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

func checkPoolFields(r *run) {
	for path, kind := range map[string]string{
		"spec.providerIDList": "array", "status.initialization.provisioned": "boolean", "status.replicas": "integer",
	} {
		r.wantField(r.Objects.Pool, path, kind)
	}
}

// addPool makes a MachinePool, its infrastructure and its bootstrap data.
func (p *fixture) addPool(name string, replicas int32, ofInfra ...change) *unstructured.Unstructured {
	p.Helper()
	p.addSecret(name)
	mp := &clusterv1.MachinePool{}
	mp.Namespace, mp.Name, mp.Labels = p.namespace, name, map[string]string{clusterv1.ClusterNameLabel: p.cluster}
	mp.Spec.ClusterName, mp.Spec.Replicas = p.cluster, &replicas
	template := &mp.Spec.Template.Spec
	template.ClusterName, template.Version = p.cluster, "v1.36.0"
	template.InfrastructureRef = refTo(p.Objects.Pool, name)
	template.Bootstrap.DataSecretName = &name
	mp.Finalizers = []string{clusterv1.MachinePoolFinalizer}
	p.create(mp)
	return p.addInfra(p.Objects.Pool, name, ofInfra)
}

func (p *fixture) poolReader(name string) func() *unstructured.Unstructured {
	return func() *unstructured.Unstructured { return p.read(p.Objects.Pool, name) }
}

// untilPool waits for a pool with so many machines.
func (p *fixture) untilPool(name string, replicas int) {
	p.Helper()
	p.until(p.Limits.Provision, fmt.Sprintf("the InfraMachinePool has %d machines", replicas), func() string {
		pool := p.poolReader(name)()
		if missing := p.lacksProvisioned(pool); missing != "" {
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
func (r *run) pool(replicas int32) (p *fixture, name string) {
	r.Helper()
	p, name = r.newFixture(), "p-"+unique()
	p.addCluster(nil)
	p.addPool(name, replicas)
	p.untilPool(name, int(replicas))
	return p, name
}

func checkPoolProvisioned(r *run) {
	p, name := r.newFixture(), "p-"+unique()
	h := p.record(p.Objects.Pool)
	p.addCluster(nil)
	p.addPool(name, 2)
	p.untilPool(name, 2)
	p.settle(p.poolReader(name))
	p.wantForEver(h)
}

// checkPoolReady: the contract asks for status.initialization.provisioned, and
// core looks at this only.
func checkPoolReady(r *run) {
	p, name := r.pool(1)
	p.until(p.Limits.Provision, "status.ready of the InfraMachinePool, which is what core looks at, is true", func() string {
		pool := p.poolReader(name)()
		if ready, _, _ := unstructured.NestedBool(pool.Object, "status", "ready"); !ready {
			return "it is not"
		}
		return ""
	})
}

func checkPoolScale(r *run) {
	p, name := r.pool(1)
	for _, want := range []int32{2, 1} {
		mp := &clusterv1.MachinePool{}
		p.patch(mp, name, func() { mp.Spec.Replicas = &want })
		p.untilPool(name, int(want))
	}
}

func checkPoolQuiet(r *run) {
	p, name := r.pool(1)
	p.wantQuiet("InfraMachinePool", p.poolReader(name))
}

func checkPoolPaused(r *run) {
	p, name := r.pausedCluster(), "p-"+unique()
	made := p.addPool(name, 1, func(o client.Object) { p.ownedBy(&clusterv1.MachinePool{}, name, o) })
	p.wantUntouched("while the Cluster is paused (spec.paused)", made)
}

func checkPoolDelete(r *run) {
	p, name := r.pool(1)
	p.delete(&clusterv1.MachinePool{}, name)
	p.untilGone("the InfraMachinePool", name, p.poolReader(name))
	p.wantNothingOutside()
}
