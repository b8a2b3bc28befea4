// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func checkMachineDelete(r *run) {
	p, name, _ := r.machine()
	p.deleteMachine(name)
	p.untilInfraGone(name)
	p.wantNothingOutside()
}

// checkMachineDeleteEarly: no wait may keep a deletion.
func checkMachineDeleteEarly(r *run) {
	p, name := r.newFixture(), "m-"+unique()
	p.addCluster(nil, waiting...)
	p.addMachine(name, p.ownedByMachine)
	p.while("the wait for the cluster", func() string { return "" })
	p.deleteMachine(name)
	p.untilInfraGone(name)
	p.wantNothingOutside()
}

func checkMachineDeleteWithoutBootstrap(r *run) {
	p, name := r.newFixture(), "m-"+unique()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.addMachineWith(name, nil, p.ownedByMachine)
	p.while("the wait for bootstrap data", func() string { return "" })
	p.deleteMachine(name)
	p.untilInfraGone(name)
	p.wantNothingOutside()
}

// checkMachineDeleteWhileMade deletes as soon as the provider has said, by its
// finalizer, that it begins.
func checkMachineDeleteWhileMade(r *run) {
	p, name := r.newFixture(), "m-"+unique()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.addMachine(name)
	p.untilBegun(name)
	p.deleteMachine(name)
	p.untilInfraGone(name)
	p.wantNothingOutside()
}

// untilBegun waits until the provider works on a machine.
func (p *fixture) untilBegun(name string) {
	p.Helper()
	p.until(p.Limits.Provision, "the InfraMachine has a finalizer", func() string {
		if infra := p.infra(name); infra != nil && len(infra.GetFinalizers()) == 0 && providerID(infra) == "" {
			return "it has none"
		}
		return ""
	})
}

// checkMachineDeleteOrphan: the identity on the object has to be enough.
func checkMachineDeleteOrphan(r *run) {
	p, name, _ := r.machine()
	p.alone = true
	p.vanish(r.Context(), &clusterv1.Machine{}, name)
	p.vanish(r.Context(), empty(p.Objects.Cluster.GroupVersionKind()), p.cluster)
	p.vanish(r.Context(), &clusterv1.Cluster{}, p.cluster)
	p.deleteInfra(name)
	p.untilInfraGone(name)
	p.wantNothingOutside()
}

// checkDeleteClusterFirst: whoever removes objects in any order, such as a
// package manager, must not get stuck.
func checkDeleteClusterFirst(r *run) {
	p, name, _ := r.machine()
	p.alone = true
	p.deleteInfraCluster()
	p.while("the deletion of the InfraCluster", func() string { return "" })
	p.deleteInfra(name)
	p.untilInfraGone(name)
	p.untilInfraClusterGone()
	p.wantNothingOutside()
}

func checkMachineReadyInDeletion(r *run) {
	p, name, _ := r.machine(withHold)
	h := p.record(p.Objects.Machine)
	p.deleteMachine(name)
	p.untilSeen(h, "an InfraMachine in deletion with a condition Ready that is not True", func(u *unstructured.Unstructured) bool {
		c := condition(u, clusterv1.ReadyCondition)
		return !u.GetDeletionTimestamp().IsZero() && c != nil && c.Status != metav1.ConditionTrue
	})
}

func checkMachineFinalizersOfOthers(r *run) {
	p, name, _ := r.machine(withHold)
	p.deleteMachine(name)
	p.until(p.Limits.Delete, "the InfraMachine has the finalizer of somebody else only", func() string {
		infra := p.infra(name)
		if infra == nil {
			p.Fatalf("the InfraMachine is gone although it had a finalizer of somebody else: the provider has removed that too")
		}
		if len(infra.GetFinalizers()) > 1 {
			return describe(infra)
		}
		return ""
	})
	p.while("the other finalizer", func() string {
		if infra := p.infra(name); infra == nil || len(infra.GetFinalizers()) == 0 {
			return "the provider has removed it too"
		}
		return ""
	})
}

func checkDeleteOneOfTwo(r *run) {
	p, a, b := r.newFixture(), "m-"+unique(), "m-"+unique()
	p.addCluster(nil)
	p.addMachine(a)
	p.addMachine(b)
	p.untilProvisioned(a)
	p.untilProvisioned(b)
	p.deleteMachine(a)
	p.untilInfraGone(a)
	p.settle(p.machineReader(b))
	r.wantOutside(1, "after the deletion of one of two machines")
}
