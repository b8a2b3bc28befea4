// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func paused(c *clusterv1.Cluster) {
	yes := true
	c.Spec.Paused = &yes
}

var pauseAnnotation = annotated(clusterv1.PausedAnnotation, "")

func checkClusterPausedBySpec(r *run) {
	p := r.newFixture()
	p.wantUntouched("while the Cluster is paused (spec.paused)", p.addCluster(paused, p.ownedByCluster))
}

func checkClusterPausedByAnnotation(r *run) {
	p := r.newFixture()
	p.wantUntouched("while it is paused (annotation "+clusterv1.PausedAnnotation+")", p.addCluster(nil, pauseAnnotation, p.ownedByCluster))
}

func checkClusterPausedCondition(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.pause(true)
	p.untilPaused(r.Context(), p.infraCluster, metav1.ConditionTrue)
}

func checkClusterResumed(r *run) {
	p := r.newFixture()
	p.addCluster(paused, p.ownedByCluster)
	p.while("the pause", func() string { return "" })
	p.pause(false)
	p.untilClusterProvisioned()
}

func checkClusterDeletePaused(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	if len(p.infraCluster().GetFinalizers()) == 0 {
		r.Skipf("not checked: the InfraCluster has no finalizer that could stay")
	}
	p.pause(true)
	p.seePause(p.infraCluster)
	before := p.infraCluster()
	p.deleteInfraCluster()
	p.wantUntouched("in deletion while the Cluster is paused", before)
}

// pausedCluster makes a cluster that is provisioned, and pauses it.
func (r *run) pausedCluster() *fixture {
	r.Helper()
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.pause(true)
	p.seePause(p.infraCluster)
	return p
}

// seePause gives a provider time to see a pause: what it does before that is
// not against the contract. Whether it says so is for other checks.
func (p *fixture) seePause(read func() *unstructured.Unstructured) {
	p.Helper()
	p.poll(p.Context(), 10*p.Limits.Quiet, func() string {
		return lacksCondition(read(), clusterv1.PausedCondition, metav1.ConditionTrue)
	})
}

func checkMachinePausedBySpec(r *run) {
	p := r.pausedCluster()
	p.wantUntouched("while the Cluster is paused (spec.paused)", p.addMachine("m-"+unique(), p.ownedByMachine))
}

func (p *fixture) machineReader(name string) func() *unstructured.Unstructured {
	return func() *unstructured.Unstructured { return p.infra(name) }
}

func checkMachinePausedByAnnotation(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.wantUntouched("while it is paused (annotation "+clusterv1.PausedAnnotation+")", p.addMachine("m-"+unique(), pauseAnnotation, p.ownedByMachine))
}

func checkMachinePausedCondition(r *run) {
	p, name, _ := r.machine()
	p.pause(true)
	p.untilPaused(r.Context(), p.machineReader(name), metav1.ConditionTrue)
	p.pause(false)
	p.untilPaused(r.Context(), p.machineReader(name), metav1.ConditionFalse)
}

func checkMachineResumed(r *run) {
	p, name := r.pausedCluster(), "m-"+unique()
	p.addMachine(name, p.ownedByMachine)
	p.while("the pause", func() string { return "" })
	p.pause(false)
	p.untilProvisioned(name)
}

func checkMachineDeletePaused(r *run) {
	p, name, _ := r.machine()
	p.pause(true)
	p.seePause(p.machineReader(name))
	before := p.infra(name)
	p.deleteInfra(name)
	p.wantUntouched("in deletion while the Cluster is paused", before)
}

func checkMachinePausedOutside(r *run) {
	p, name, _ := r.machine()
	before := len(r.inventory())
	p.pause(true)
	p.seePause(p.machineReader(name))
	p.deleteInfra(name)
	p.while("the pause", func() string { return "" })
	r.wantOutside(before, "after the deletion of a machine that is paused")
}
