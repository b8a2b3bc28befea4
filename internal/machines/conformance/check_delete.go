// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func checkMachineDelete(r *run) {
	fx, name, _ := r.machine()
	fx.wantDeleted(name)
}

// checkMachineDeleteEarly: no wait may keep a deletion.
func checkMachineDeleteEarly(r *run) {
	fx, name := r.newFixture(), "m-"+unique()
	fx.addCluster(nil, waiting...)
	fx.addMachine(name, fx.ownedByMachine)
	fx.while("the wait for the cluster", func() string { return "" })
	fx.wantDeleted(name)
}

func checkMachineDeleteWithoutBootstrap(r *run) {
	fx, name := r.provisionedCluster(), "m-"+unique()
	fx.addMachineWith(name, nil, fx.ownedByMachine)
	fx.while("the wait for bootstrap data", func() string { return "" })
	fx.wantDeleted(name)
}

// checkMachineDeleteWhileMade deletes the machine as soon as it has the provider's
// finalizer.
func checkMachineDeleteWhileMade(r *run) {
	fx, name := r.provisionedCluster(), "m-"+unique()
	fx.addMachine(name)
	fx.untilBegun(name)
	fx.wantDeleted(name)
}

// untilBegun waits until the provider works on a machine.
func (fx *fixture) untilBegun(name string) {
	fx.until(fx.Limits.Provision, "the InfraMachine has a finalizer", func() string {
		if infra := fx.infra(name); infra != nil && len(infra.GetFinalizers()) == 0 && providerID(infra) == "" {
			return "it has none"
		}
		return ""
	})
}

// checkMachineDeleteOrphan: the identity on the object has to be enough.
func checkMachineDeleteOrphan(r *run) {
	fx, name, _ := r.machine()
	fx.alone = true
	fx.vanish(r.Context(), &clusterv1.Machine{}, name)
	fx.vanish(r.Context(), empty(fx.Objects.Cluster.GroupVersionKind()), fx.cluster)
	fx.vanish(r.Context(), &clusterv1.Cluster{}, fx.cluster)
	fx.deleteInfra(name)
	fx.untilInfraGone(name)
	fx.wantNothingOutside()
}

// checkDeleteClusterFirst: whoever removes objects in any order, such as a
// package manager, must not get stuck.
func checkDeleteClusterFirst(r *run) {
	fx, name, _ := r.machine()
	fx.alone = true
	fx.deleteInfraCluster()
	fx.while("the deletion of the InfraCluster", func() string { return "" })
	fx.deleteInfra(name)
	fx.untilInfraGone(name)
	fx.untilInfraClusterGone()
	fx.wantNothingOutside()
}

func checkMachineReadyInDeletion(r *run) {
	fx, name, _ := r.machine(withHold)
	h := fx.record(fx.Objects.Machine)
	fx.deleteMachine(name)
	fx.untilSeen(h, "an InfraMachine in deletion with a condition Ready that is not True", func(u *unstructured.Unstructured) bool {
		c := condition(u, clusterv1.ReadyCondition)
		return !u.GetDeletionTimestamp().IsZero() && c != nil && c.Status != metav1.ConditionTrue
	})
}

func checkMachineFinalizersOfOthers(r *run) {
	fx, name, _ := r.machine(withHold)
	fx.deleteMachine(name)
	fx.until(fx.Limits.Delete, "the InfraMachine has the finalizer of somebody else only", func() string {
		infra := fx.infra(name)
		if infra == nil {
			fx.Fatalf("the InfraMachine is gone although it had a finalizer of somebody else: the provider has removed that too")
		}
		if len(infra.GetFinalizers()) > 1 {
			return describe(infra)
		}
		return ""
	})
	fx.while("the other finalizer", func() string {
		if infra := fx.infra(name); infra == nil || len(infra.GetFinalizers()) == 0 {
			return "the provider has removed it too"
		}
		return ""
	})
}

func checkDeleteOneOfTwo(r *run) {
	fx, a, b := r.newFixture(), "m-"+unique(), "m-"+unique()
	fx.addCluster(nil)
	fx.addMachine(a)
	fx.addMachine(b)
	fx.untilProvisioned(a)
	fx.untilProvisioned(b)
	fx.deleteMachine(a)
	fx.untilInfraGone(a)
	fx.settle(fx.machineReader(b))
	r.wantOutside(1, "after the deletion of one of two machines")
}
