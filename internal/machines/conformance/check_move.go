// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var moveChecks = []Check{
	{"move-source", "Objects that clusterctl move takes away (annotation delete-for-move) are left alone, and what exists outside too.", nil, func(r *run) {
		fx, name, _ := r.machine()
		fx.moveStrictly = true
		m := fx.take(name)
		fx.while("after the move", func() string { return "" })
		r.wantOutside(1, "after the objects of one machine were moved away")
		fx.bring(m) // without its objects nobody would remove the machine
	}},
	{"move-rebuilt", "Objects that come with new UIDs and without status are provisioned again.", nil, func(r *run) {
		fx, name, _ := r.machine()
		m := fx.take(name)
		fx.bring(m)
		fx.untilClusterProvisioned()
		fx.untilProvisioned(name)
	}},
	{"move-same-machine", "Objects that come with new UIDs and without status keep their machine: no second one is made.", nil, func(r *run) {
		fx, name, before := r.machine()
		m := fx.take(name)
		fx.bring(m)
		fx.while("the move", func() string {
			if infra := fx.infra(name); infra == nil {
				return "the InfraMachine is gone"
			} else if providerID(infra) != providerID(before) {
				return "the providerID was " + providerID(before) + ", is " + providerID(infra)
			}
			return ""
		})
		r.wantOutside(1, "after the move of one machine")
	}},
	{"move-delete", "A machine that was moved can be deleted, and leaves nothing.", nil, func(r *run) {
		fx, name, _ := r.machine()
		fx.bring(fx.take(name))
		fx.until(fx.Limits.Provision, "the InfraMachine has a finalizer", func() string {
			if infra := fx.infra(name); infra == nil || len(infra.GetFinalizers()) == 0 {
				return "it has none"
			}
			return ""
		})
		fx.wantDeleted(name)
	}},
	{"status-lost", "A status that is lost is found again, with the same machine.", nil, func(r *run) {
		// A provider must be able to rebuild a lost status.
		fx, name, before := r.machine()
		fx.settle(fx.machineReader(name))
		u := fx.infra(name)
		u.Object["status"] = map[string]any{}
		if err := r.Client.Status().Update(r.Context(), u); err != nil {
			r.Fatalf("empty the status: %v", err)
		}
		fx.untilProvisioned(name)
		if got := providerID(fx.infra(name)); got != providerID(before) {
			r.Errorf("the providerID was %s, is %s since the status was lost", providerID(before), got)
		}
	}},
}

// moved is what clusterctl move has taken from a place.
type moved struct {
	cluster  *clusterv1.Cluster
	machine  *clusterv1.Machine
	infra    *unstructured.Unstructured
	infraCls *unstructured.Unstructured
}

// take does what clusterctl move does in the management cluster that is left:
// it pauses, keeps copies, and removes the objects, children first, without
// anything being done to what they stand for.
func (fx *fixture) take(name string) moved {
	fx.pause(true)
	fx.seePause(fx.machineReader(name))
	fx.seePause(fx.infraCluster)
	fx.settle(fx.machineReader(name))
	m := moved{cluster: &clusterv1.Cluster{}, machine: &clusterv1.Machine{}, infra: fx.infra(name), infraCls: fx.infraCluster()}
	fx.get(fx.Context(), m.cluster, fx.cluster)
	fx.get(fx.Context(), m.machine, name)
	fx.alone = true
	for _, o := range []client.Object{m.infra, m.machine, m.infraCls, m.cluster} {
		fx.leave(o.DeepCopyObject().(client.Object))
	}
	return m
}

// leave removes one object as clusterctl does: the annotation takes the place of
// all others, then comes the deletion, then finalizers are emptied.
func (fx *fixture) leave(o client.Object) {
	fx.patch(o, o.GetName(), func() { o.SetAnnotations(map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}) })
	u, ok := o.(*unstructured.Unstructured)
	if ok && fx.moveStrictly {
		fx.wantUntouched("while clusterctl moves it away (annotation "+clusterctlv1.DeleteForMoveAnnotation+")", u)
	}
	fx.vanish(fx.Context(), o, o.GetName())
}

// bring does what clusterctl move does in the other management cluster: objects
// have new UIDs and no status.
func (fx *fixture) bring(m moved) {
	cluster := m.cluster.DeepCopy()
	cluster.Status = clusterv1.ClusterStatus{}
	fx.createAgain(cluster, nil)
	fx.createAgain(m.infraCls.DeepCopy(), cluster)
	machine := m.machine.DeepCopy()
	machine.Status = clusterv1.MachineStatus{}
	fx.createAgain(machine, cluster)
	fx.createAgain(m.infra.DeepCopy(), machine)
	fx.alone = false
	fx.pause(false)
}

func (fx *fixture) createAgain(o, owner client.Object) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		delete(u.Object, "status")
	}
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetGeneration(0)
	o.SetManagedFields(nil)
	o.SetOwnerReferences(nil)
	o.SetDeletionTimestamp(nil)
	if owner != nil {
		fx.ownedBy(owner.DeepCopyObject().(client.Object), owner.GetName(), o)
	}
	fx.create(o)
}

var restartChecks = []Check{
	{"restart-waiting", "A manager that is killed while a machine waits goes on waiting after its restart, and then makes one.", []need{needsRestart}, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachineWith(name, nil, fx.ownedByMachine)
		fx.while("the wait for bootstrap data", func() string { return "" })
		r.restart()
		fx.addSecret(name)
		m := &clusterv1.Machine{}
		fx.patch(m, name, func() { m.Spec.Bootstrap.DataSecretName = &name })
		fx.untilProvisioned(name)
		r.wantOutside(1, "after a restart while one machine waited")
	}},
	{"restart-while-made", "A manager that is killed while it makes a machine makes no second one.", []need{needsRestart}, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachine(name)
		fx.untilBegun(name)
		r.restart()
		fx.untilProvisioned(name)
		fx.settle(fx.machineReader(name))
		r.wantOutside(1, "after a restart in the middle of making one machine")
	}},
	{"restart-provisioned", "A manager that is killed beside a machine changes nothing after its restart.", []need{needsRestart}, func(r *run) {
		fx, name, _ := r.machine()
		fx.settle(fx.machineReader(name))
		before := fx.infra(name)
		r.restart()
		fx.while("the manager was restarted", func() string { return touched(before, fx.infra(name)) })
		r.wantOutside(1, "after a restart beside one machine")
	}},
	{"restart-deleting", "A manager that is killed while it deletes a machine goes on, and leaves nothing.", []need{needsRestart}, func(r *run) {
		fx, name, _ := r.machine()
		fx.deleteMachine(name)
		r.restart()
		fx.untilInfraGone(name)
		fx.wantNothingOutside()
	}},
}

func (r *run) restart() {
	if err := r.Restart(r.Context()); err != nil {
		r.Fatalf("restart the manager: %v", err)
	}
}
