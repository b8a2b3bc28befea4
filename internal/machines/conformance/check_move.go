// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
func (p *fixture) take(name string) moved {
	p.Helper()
	p.pause(true)
	p.seePause(p.machineReader(name))
	p.seePause(p.infraCluster)
	p.settle(p.machineReader(name))
	m := moved{cluster: &clusterv1.Cluster{}, machine: &clusterv1.Machine{}, infra: p.infra(name), infraCls: p.infraCluster()}
	p.get(p.Context(), m.cluster, p.cluster)
	p.get(p.Context(), m.machine, name)
	p.alone = true
	for _, o := range []client.Object{m.infra, m.machine, m.infraCls, m.cluster} {
		p.leave(o.DeepCopyObject().(client.Object))
	}
	return m
}

// leave removes one object as clusterctl does: the annotation takes the place of
// all others, then comes the deletion, then finalizers are emptied.
func (p *fixture) leave(o client.Object) {
	p.Helper()
	p.patch(o, o.GetName(), func() { o.SetAnnotations(map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}) })
	u, ok := o.(*unstructured.Unstructured)
	if ok && p.moveStrictly {
		p.wantUntouched("while clusterctl moves it away (annotation "+clusterctlv1.DeleteForMoveAnnotation+")", u)
	}
	p.vanish(p.Context(), o, o.GetName())
}

// bring does what clusterctl move does in the other management cluster: objects
// have new UIDs and no status.
func (p *fixture) bring(m moved) {
	p.Helper()
	cluster := m.cluster.DeepCopy()
	cluster.Status = clusterv1.ClusterStatus{}
	p.createAgain(cluster, nil)
	p.createAgain(m.infraCls.DeepCopy(), cluster)
	machine := m.machine.DeepCopy()
	machine.Status = clusterv1.MachineStatus{}
	p.createAgain(machine, cluster)
	p.createAgain(m.infra.DeepCopy(), machine)
	p.alone = false
	p.pause(false)
}

func (p *fixture) createAgain(o, owner client.Object) {
	p.Helper()
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
		p.ownedBy(owner.DeepCopyObject().(client.Object), owner.GetName(), o)
	}
	p.create(o)
}

func checkMoveRebuilt(r *run) {
	p, name, _ := r.machine()
	m := p.take(name)
	p.bring(m)
	p.untilClusterProvisioned()
	p.untilProvisioned(name)
}

func checkMoveSameMachine(r *run) {
	p, name, before := r.machine()
	m := p.take(name)
	p.bring(m)
	p.while("the move", func() string {
		if infra := p.infra(name); infra == nil {
			return "the InfraMachine is gone"
		} else if providerID(infra) != providerID(before) {
			return "the providerID was " + providerID(before) + ", is " + providerID(infra)
		}
		return ""
	})
	r.wantOutside(1, "after the move of one machine")
}

func checkMoveSource(r *run) {
	p, name, _ := r.machine()
	p.moveStrictly = true
	m := p.take(name)
	p.while("after the move", func() string { return "" })
	r.wantOutside(1, "after the objects of one machine were moved away")
	p.bring(m) // without its objects nobody would remove the machine
}

func checkMoveThenDelete(r *run) {
	p, name, _ := r.machine()
	p.bring(p.take(name))
	p.until(p.Limits.Provision, "the InfraMachine has a finalizer", func() string {
		if infra := p.infra(name); infra == nil || len(infra.GetFinalizers()) == 0 {
			return "it has none"
		}
		return ""
	})
	p.deleteMachine(name)
	p.untilInfraGone(name)
	p.wantNothingOutside()
}

// checkStatusLost: a provider must be able to rebuild a lost status.
func checkStatusLost(r *run) {
	p, name, before := r.machine()
	p.settle(p.machineReader(name))
	u := p.infra(name)
	u.Object["status"] = map[string]any{}
	if err := r.Client.Status().Update(r.Context(), u); err != nil {
		r.Fatalf("empty the status: %v", err)
	}
	p.untilProvisioned(name)
	if got := providerID(p.infra(name)); got != providerID(before) {
		r.Errorf("the providerID was %s, is %s since the status was lost", providerID(before), got)
	}
}
