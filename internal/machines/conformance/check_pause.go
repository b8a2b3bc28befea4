// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func paused(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }

var pauseAnnotation = annotated(clusterv1.PausedAnnotation, "")

func checkClusterPausedBySpec(r *run) {
	fx := r.newFixture()
	fx.wantUntouched("while the Cluster is paused (spec.paused)", fx.addCluster(paused, fx.ownedByCluster))
}

func checkClusterPausedByAnnotation(r *run) {
	fx := r.newFixture()
	fx.wantUntouched("while it is paused (annotation "+clusterv1.PausedAnnotation+")", fx.addCluster(nil, pauseAnnotation, fx.ownedByCluster))
}

func checkClusterPausedCondition(r *run) {
	fx := r.provisionedCluster()
	fx.pause(true)
	fx.untilPaused(r.Context(), fx.infraCluster, metav1.ConditionTrue)
}

func checkClusterResumed(r *run) {
	fx := r.newFixture()
	fx.addCluster(paused, fx.ownedByCluster)
	fx.while("the pause", func() string { return "" })
	fx.pause(false)
	fx.untilClusterProvisioned()
}

func checkClusterDeletePaused(r *run) {
	fx := r.provisionedCluster()
	if len(fx.infraCluster().GetFinalizers()) == 0 {
		r.Skipf("not checked: the InfraCluster has no finalizer that could stay")
	}
	fx.pause(true)
	fx.seePause(fx.infraCluster)
	before := fx.infraCluster()
	fx.deleteInfraCluster()
	fx.wantUntouched("in deletion while the Cluster is paused", before)
}

// pausedCluster makes a cluster that is provisioned, and pauses it.
func (r *run) pausedCluster() *fixture {
	fx := r.provisionedCluster()
	fx.pause(true)
	fx.seePause(fx.infraCluster)
	return fx
}

// seePause gives a provider time to see a pause: what it does before that is
// not against the contract. Whether it says so is for other checks.
func (fx *fixture) seePause(read func() *unstructured.Unstructured) {
	fx.poll(fx.Context(), 10*fx.Limits.Quiet, func() string {
		return lacksCondition(read(), clusterv1.PausedCondition, metav1.ConditionTrue)
	})
}

func checkMachinePausedBySpec(r *run) {
	fx := r.pausedCluster()
	fx.wantUntouched("while the Cluster is paused (spec.paused)", fx.addMachine("m-"+unique(), fx.ownedByMachine))
}

func (fx *fixture) machineReader(name string) func() *unstructured.Unstructured {
	return func() *unstructured.Unstructured { return fx.infra(name) }
}

func checkMachinePausedByAnnotation(r *run) {
	fx := r.provisionedCluster()
	fx.wantUntouched("while it is paused (annotation "+clusterv1.PausedAnnotation+")", fx.addMachine("m-"+unique(), pauseAnnotation, fx.ownedByMachine))
}

func checkMachinePausedCondition(r *run) {
	fx, name, _ := r.machine()
	fx.pause(true)
	fx.untilPaused(r.Context(), fx.machineReader(name), metav1.ConditionTrue)
	fx.pause(false)
	fx.untilPaused(r.Context(), fx.machineReader(name), metav1.ConditionFalse)
}

func checkMachineResumed(r *run) {
	fx, name := r.pausedCluster(), "m-"+unique()
	fx.addMachine(name, fx.ownedByMachine)
	fx.while("the pause", func() string { return "" })
	fx.pause(false)
	fx.untilProvisioned(name)
}

func checkMachineDeletePaused(r *run) {
	fx, name, _ := r.machine()
	fx.pause(true)
	fx.seePause(fx.machineReader(name))
	before := fx.infra(name)
	fx.deleteInfra(name)
	fx.wantUntouched("in deletion while the Cluster is paused", before)
}

func checkMachinePausedOutside(r *run) {
	fx, name, _ := r.machine()
	before := len(r.inventory())
	fx.pause(true)
	fx.seePause(fx.machineReader(name))
	fx.deleteInfra(name)
	fx.while("the pause", func() string { return "" })
	r.wantOutside(before, "after the deletion of a machine that is paused")
}
