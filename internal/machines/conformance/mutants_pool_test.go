// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// ignoringPool skips reconciliations of pools, afterPool does something more
// after them.
func ignoringPool(when func(b *broken, p *infrav1.DockerMachinePool) bool) breakage {
	return reconciles("DockerMachinePool", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		if p := fetch(b, &infrav1.DockerMachinePool{}, r.NamespacedName); p != nil && when(b, p) {
			return reconcile.Result{}, nil
		}
		return next()
	})
}

func afterPool(f func(b *broken, r request, p *infrav1.DockerMachinePool)) breakage {
	return reconciles("DockerMachinePool", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		result, err := next()
		if p := fetch(b, &infrav1.DockerMachinePool{}, r.NamespacedName); p != nil {
			f(b, r, p)
		}
		return result, err
	})
}

var poolMutants = []mutant{
	{"pool without a list", defines("DockerMachinePool", unfield("schema", "openAPIV3Schema", "properties", "spec", "properties", "providerIDList")),
		seenBy("pool-fields", "has no field spec.providerIDList")},
	{"pool provisioned for a moment", afterPool(func(b *broken, r request, p *infrav1.DockerMachinePool) {
		if done(p.Status.Initialization) && b.first("flip "+r.String()) {
			no := false
			b.patchStatus(p, func() { p.Status.Initialization.Provisioned = &no })
		}
	}), seenBy("pool-provisioned", "was true and then no more")},
	{"pool that core does not see", all(
		writtenStatus("DockerMachinePool", func(_ client.Object, patch map[string]any) bool {
			unstructured.RemoveNestedField(patch, "status", "ready")
			return true
		}),
		seen(func(o client.Object) {
			p := o.(*infrav1.DockerMachinePool)
			p.Status.Ready = done(p.Status.Initialization)
		}, "DockerMachinePool")), seenBy("pool-ready", "which is what core looks at")},
	{"pool of one size", ignoringPool(func(b *broken, p *infrav1.DockerMachinePool) bool {
		owner := fetch(b, &clusterv1.MachinePool{}, client.ObjectKeyFromObject(p))
		return done(p.Status.Initialization) && !deleting(p) && owner != nil && *owner.Spec.Replicas != p.Status.Replicas
	}), seenBy("pool-scale", "the InfraMachinePool has 2 machines")},
	{"writes pools for ever", afterPool(func(b *broken, r request, p *infrav1.DockerMachinePool) {
		if done(p.Status.Initialization) && !deleting(p) && b.again(r.String()) {
			b.patchStatus(p, func() { scribble(p.Status.Conditions) })
		}
	}), seenBy("pool-quiet", "again and again")},
	{"pool begins while paused", unpausedWhile("DockerMachinePool", unfinalized), seenBy("pool-pause", "while the Cluster is paused")},
	{"pool stays", ignoringPool(func(_ *broken, p *infrav1.DockerMachinePool) bool { return deleting(p) }), seenBy("pool-delete", "the InfraMachinePool")},
}
