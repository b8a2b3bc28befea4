// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// refused says that a machine cannot be made.
func refused(o client.Object) bool { return o.(*infrav1.OutriggerMachine).Spec.Image == "none" }

var failureMutants = []mutant{
	{"fails in silence", writtenStatus("OutriggerMachine", func(o client.Object, patch map[string]any) bool {
		if refused(o) && !deleting(o) {
			eachCondition(patch, clusterv1.ReadyCondition, func(c map[string]any) { c["message"] = "" })
		}
		return true
	}), seenBy("machine-failure-shown", "its message is empty")},
	{"tries for ever", reconciles("OutriggerMachine", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		result, err := next()
		m := b.machineOf(r)
		if m == nil || !refused(m) || unfinalized(m) || deleting(m) {
			return result, err
		}
		b.patchStatus(m, func() { scribble(m.Status.Conditions) })
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}), seenBy("machine-failure-quiet", "again and again")},
	{"what failed stays", ignoringMachine(func(_ *broken, _ request, m *infrav1.OutriggerMachine) bool {
		return refused(m) && deleting(m)
	}), seenBy("machine-failure-delete", "the InfraMachine")},
}

// unfilter has a manager take objects for its own.
func unfilter(o client.Object) {
	labels := map[string]string{}
	for k, v := range o.GetLabels() {
		labels[k] = v
	}
	labels[clusterv1.WatchLabel] = watchFilter
	o.SetLabels(labels)
}

var filterMutants = []mutant{
	{"takes all clusters", seen(unfilter, "OutriggerCluster"), seenBy("watch-filter-cluster", "label "+clusterv1.WatchLabel)},
	{"takes all machines", seen(unfilter, "OutriggerMachine"), seenBy("watch-filter-machine", "label "+clusterv1.WatchLabel)},
	{"takes machines without a label", seen(func(o client.Object) {
		if o.GetLabels()[clusterv1.WatchLabel] == "" {
			unfilter(o)
		}
	}, "OutriggerMachine"), seenBy("watch-filter-machine", "without the label")},
}

var graphMutants = []mutant{
	{"writes clusters with machines for ever", afterCluster(func(b *broken, r request, c *infrav1.OutriggerCluster) {
		var machines infrav1.OutriggerMachineList
		b.raw().List(context.Background(), &machines, client.InNamespace(c.Namespace))
		if len(machines.Items) > 1 && done(machines.Items[0].Status.Initialization) && done(machines.Items[1].Status.Initialization) &&
			!deleting(c) && !isPaused(c, b.clusterOf(c)) && b.again(r.String()) {
			b.patchStatus(c, func() { scribble(c.Status.Conditions) })
		}
	}), seenBy("cluster-with-machines-quiet", "again and again")},
	{"leaves a ConfigMap", afterMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) {
		if done(m.Status.Initialization) && !deleting(m) && b.first("state "+r.String()) {
			b.raw().Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name + "-state"}})
		}
	}), seenBy("owner-graph", "ConfigMap")},
}

// reads changes what is read of a kind in contract v1beta1.
func reads(kind string, f func(*unstructured.Unstructured)) breakage {
	return func(b *broken) {
		b.older = func(u *unstructured.Unstructured) {
			if u.GetKind() == kind {
				f(u)
			}
		}
	}
}

var olderMutants = []mutant{
	{"never ready for an older core", reads("OutriggerMachine", func(u *unstructured.Unstructured) {
		unstructured.RemoveNestedField(u.Object, "status", "ready")
	}), seenBy("older-contract-ready", "an older core waits")},
	{"no endpoint for an older core", reads("OutriggerCluster", func(u *unstructured.Unstructured) {
		unstructured.RemoveNestedField(u.Object, "spec", "controlPlaneEndpoint")
	}), seenBy("older-contract-ready", "spec.controlPlaneEndpoint in version")},
	{"all well, it says as a failure", reads("OutriggerCluster", func(u *unstructured.Unstructured) {
		unstructured.SetNestedField(u.Object, "all is well", "status", "failureMessage")
	}), seenBy("older-contract-failure", "gives it up for ever")},
	{"domains as a list for an older core", reads("OutriggerCluster", func(u *unstructured.Unstructured) {
		unstructured.SetNestedSlice(u.Object, []any{map[string]any{"name": "b"}}, "status", "failureDomains")
	}), seenBy("older-contract-domains", "is not a map")},
	{"an older core does not see the domain", reads("OutriggerMachine", func(u *unstructured.Unstructured) {
		unstructured.RemoveNestedField(u.Object, "spec", "failureDomain")
	}), seenBy("older-contract-domains", "spec.failureDomain of the InfraMachine")},
}
