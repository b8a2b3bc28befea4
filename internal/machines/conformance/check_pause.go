// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var pauseChecks = []Check{
	{"pause-cluster", "While Cluster.spec.paused is set nothing but the condition Paused of an InfraCluster is written.", nil, func(r *run) {
		fx := r.newFixture()
		fx.wantUntouched("while the Cluster is paused (spec.paused)", fx.addCluster(paused, fx.ownedByCluster))
	}},
	{"pause-cluster-annotation", "While an InfraCluster has the annotation cluster.x-k8s.io/paused nothing but its condition Paused is written.", nil, func(r *run) {
		fx := r.newFixture()
		fx.wantUntouched("while it is paused (annotation "+clusterv1.PausedAnnotation+")", fx.addCluster(nil, pauseAnnotation, fx.ownedByCluster))
	}},
	{"pause-cluster-condition", "The condition Paused of an InfraCluster says that it is paused.", nil, func(r *run) {
		fx := r.provisionedCluster()
		fx.pause(true)
		fx.untilCondition(fx.infraCluster, clusterv1.PausedCondition, metav1.ConditionTrue)
	}},
	{"pause-cluster-end", "When a pause ends, the work on an InfraCluster goes on.", nil, func(r *run) {
		fx := r.newFixture()
		fx.addCluster(paused, fx.ownedByCluster)
		fx.while("the pause", func() string { return "" })
		fx.pause(false)
		fx.untilClusterProvisioned()
	}},
	{"pause-cluster-delete", "An InfraCluster that is deleted while paused stays as it is.", nil, func(r *run) {
		fx := r.provisionedCluster()
		if len(fx.infraCluster().GetFinalizers()) == 0 {
			r.Skipf("not checked: the InfraCluster has no finalizer that could stay")
		}
		fx.pause(true)
		fx.seePause(fx.infraCluster)
		before := fx.infraCluster()
		fx.deleteInfraCluster()
		fx.wantUntouched("in deletion while the Cluster is paused", before)
	}},
	{"pause-machine", "While Cluster.spec.paused is set nothing but the condition Paused of an InfraMachine is written.", nil, func(r *run) {
		fx := r.pausedCluster()
		fx.wantUntouched("while the Cluster is paused (spec.paused)", fx.addMachine("m-"+unique(), fx.ownedByMachine))
	}},
	{"pause-machine-annotation", "While an InfraMachine has the annotation cluster.x-k8s.io/paused nothing but its condition Paused is written.", nil, func(r *run) {
		fx := r.provisionedCluster()
		fx.wantUntouched("while it is paused (annotation "+clusterv1.PausedAnnotation+")", fx.addMachine("m-"+unique(), pauseAnnotation, fx.ownedByMachine))
	}},
	{"pause-machine-condition", "The condition Paused of an InfraMachine says whether it is paused.", nil, func(r *run) {
		fx, name, _ := r.machine()
		fx.pause(true)
		fx.untilCondition(fx.machineReader(name), clusterv1.PausedCondition, metav1.ConditionTrue)
		fx.pause(false)
		fx.untilCondition(fx.machineReader(name), clusterv1.PausedCondition, metav1.ConditionFalse)
	}},
	{"pause-machine-end", "When a pause ends, the work on an InfraMachine goes on.", nil, func(r *run) {
		fx, name := r.pausedCluster(), "m-"+unique()
		fx.addMachine(name, fx.ownedByMachine)
		fx.while("the pause", func() string { return "" })
		fx.pause(false)
		fx.untilProvisioned(name)
	}},
	{"pause-machine-delete", "An InfraMachine that is deleted while paused stays as it is.", nil, func(r *run) {
		fx, name, _ := r.machine()
		fx.pause(true)
		fx.seePause(fx.machineReader(name))
		before := fx.infra(name)
		fx.deleteInfra(name)
		fx.wantUntouched("in deletion while the Cluster is paused", before)
	}},
	{"pause-machine-outside", "What exists outside is not touched while paused, also when the InfraMachine is deleted.", []need{needsInventory}, func(r *run) {
		fx, name, _ := r.machine()
		before := len(r.inventory())
		fx.pause(true)
		fx.seePause(fx.machineReader(name))
		fx.deleteInfra(name)
		fx.while("the pause", func() string { return "" })
		r.wantOutside(before, "after the deletion of a machine that is paused")
	}},
}

func paused(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }

var pauseAnnotation = annotated(clusterv1.PausedAnnotation, "")

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

func (fx *fixture) machineReader(name string) func() *unstructured.Unstructured {
	return func() *unstructured.Unstructured { return fx.infra(name) }
}

var filterChecks = []Check{
	{"watch-filter-cluster", "An InfraCluster that has not the label of --watch-filter is left alone.", []need{needsFilter}, func(r *run) {
		for what, change := range map[string]change{"without the label": unfiltered, "with another manager's label": ofAnother} {
			fx := r.newFixture()
			fx.wantUntouched(what+" "+clusterv1.WatchLabel, fx.addCluster(nil, fx.ownedByCluster, change))
		}
	}},
	{"watch-filter-machine", "An InfraMachine that has not the label of --watch-filter is left alone.", []need{needsFilter}, func(r *run) {
		fx := r.provisionedCluster()
		for what, change := range map[string]change{"without the label": unfiltered, "with another manager's label": ofAnother} {
			fx.wantUntouched(what+" "+clusterv1.WatchLabel, fx.addMachine("m-"+unique(), fx.ownedByMachine, change))
		}
	}},
}

// filtered gives an object the label of the manager under test.
func (s *Subject) filtered(o client.Object) {
	if s.WatchFilter != "" {
		labelled(clusterv1.WatchLabel, s.WatchFilter)(o)
	}
}

// ofAnother gives an object to another manager.
func ofAnother(o client.Object) {
	unfiltered(o)
	labelled(clusterv1.WatchLabel, "another-"+unique())(o)
}

func unfiltered(o client.Object) {
	labels := o.GetLabels()
	delete(labels, clusterv1.WatchLabel)
	o.SetLabels(labels)
}
