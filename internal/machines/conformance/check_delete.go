// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var deleteChecks = []Check{
	{"delete-cluster", "An InfraCluster that is deleted goes.", nil, func(r *run) {
		fx := r.provisionedCluster()
		fx.deleteInfraCluster()
		fx.untilInfraClusterGone()
	}},
	{"delete-cluster-without-owner", "An InfraCluster can be deleted when its Cluster is gone.", nil, func(r *run) {
		// Everything else may be gone already.
		fx := r.provisionedCluster()
		fx.alone = true
		fx.vanish(fx.Context(), &clusterv1.Cluster{}, fx.cluster)
		fx.deleteInfraCluster()
		fx.untilInfraClusterGone()
	}},
	{"delete-cluster-all", "A Cluster that is deleted goes with all its infrastructure.", nil, func(r *run) {
		fx := r.newFixture()
		fx.provisionedMachine("m-" + unique())
		fx.delete(&clusterv1.Cluster{}, fx.cluster)
		fx.until(fx.Limits.Delete, "the Cluster is gone with its machines", func() string {
			c := &clusterv1.Cluster{}
			if !fx.get(fx.Context(), c, fx.cluster) {
				return ""
			}
			return "the Cluster is still there, and " + fx.stillThere()
		})
		fx.wantNothingOutside()
	}},
	{"delete-cluster-first", "InfraMachines can be deleted after their InfraCluster, which goes too.", nil, func(r *run) {
		// Whoever removes objects in any order, such as a package manager, must not get stuck.
		fx, name, _ := r.machine()
		fx.alone = true
		fx.deleteInfraCluster()
		fx.while("the deletion of the InfraCluster", func() string { return "" })
		fx.deleteInfra(name)
		fx.untilInfraGone(name)
		fx.untilInfraClusterGone()
		fx.wantNothingOutside()
	}},
	{"delete-machine", "An InfraMachine that is deleted goes, and then nothing of it exists outside.", nil, func(r *run) {
		fx, name, _ := r.machine()
		fx.wantDeleted(name)
	}},
	{"delete-machine-early", "An InfraMachine can be deleted before the infrastructure of its cluster is provisioned.", nil, func(r *run) {
		// No wait may keep a deletion.
		fx, name := r.newFixture(), "m-"+unique()
		fx.addCluster(nil, waiting...)
		fx.addMachine(name, fx.ownedByMachine)
		fx.while("the wait for the cluster", func() string { return "" })
		fx.wantDeleted(name)
	}},
	{"delete-machine-without-bootstrap", "An InfraMachine can be deleted while it waits for bootstrap data.", nil, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachineWith(name, nil, fx.ownedByMachine)
		fx.while("the wait for bootstrap data", func() string { return "" })
		fx.wantDeleted(name)
	}},
	{"delete-machine-while-made", "An InfraMachine that is deleted while its machine is made leaves nothing.", nil, func(r *run) {
		// It deletes the machine as soon as it has the provider's finalizer.
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachine(name)
		fx.untilBegun(name)
		fx.wantDeleted(name)
	}},
	{"delete-machine-orphan", "An InfraMachine can be deleted when Machine, InfraCluster and Cluster are gone, and leaves nothing.", nil, func(r *run) {
		// The identity on the object has to be enough.
		fx, name, _ := r.machine()
		fx.alone = true
		fx.vanish(r.Context(), &clusterv1.Machine{}, name)
		fx.vanish(r.Context(), empty(fx.Objects.Cluster.GroupVersionKind()), fx.cluster)
		fx.vanish(r.Context(), &clusterv1.Cluster{}, fx.cluster)
		fx.deleteInfra(name)
		fx.untilInfraGone(name)
		fx.wantNothingOutside()
	}},
	{"delete-machine-ready", "The condition Ready of an InfraMachine in deletion is not True.", nil, func(r *run) {
		fx, name, _ := r.machine(withHold)
		h := fx.record(fx.Objects.Machine)
		fx.deleteMachine(name)
		fx.untilSeen(h, "an InfraMachine in deletion with a condition Ready that is not True", func(u *unstructured.Unstructured) bool {
			c := condition(u, clusterv1.ReadyCondition)
			return !u.GetDeletionTimestamp().IsZero() && c != nil && c.Status != metav1.ConditionTrue
		})
	}},
	{"delete-machine-finalizers", "A provider removes its own finalizer and no other.", nil, func(r *run) {
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
	}},
	{"delete-machine-other", "The deletion of one machine does not touch another.", []need{needsInventory}, func(r *run) {
		fx, names := r.twoMachines()
		fx.deleteMachine(names[0])
		fx.untilInfraGone(names[0])
		fx.settle(fx.machineReader(names[1]))
		r.wantOutside(1, "after the deletion of one of two machines")
	}},
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
