// SPDX-License-Identifier: Apache-2.0

package conformance

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// restart kills the manager and starts another.
func (r *run) restart() {
	r.Helper()
	if err := r.Restart(r.Context()); err != nil {
		r.Fatalf("restart the manager: %v", err)
	}
}

func checkRestartWaiting(r *run) {
	p, name := r.newFixture(), "m-"+unique()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.addMachineWith(name, nil, p.ownedByMachine)
	p.while("the wait for bootstrap data", func() string { return "" })
	r.restart()
	p.addSecret(name)
	m := &clusterv1.Machine{}
	p.patch(m, name, func() { m.Spec.Bootstrap.DataSecretName = &name })
	p.untilProvisioned(name)
	r.wantOutside(1, "after a restart while one machine waited")
}

func checkRestartWhileMade(r *run) {
	p, name := r.newFixture(), "m-"+unique()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.addMachine(name)
	p.untilBegun(name)
	r.restart()
	p.untilProvisioned(name)
	p.settle(p.machineReader(name))
	r.wantOutside(1, "after a restart in the middle of making one machine")
}

func checkRestartProvisioned(r *run) {
	p, name, _ := r.machine()
	p.settle(p.machineReader(name))
	before := p.infra(name)
	r.restart()
	p.while("the manager was restarted", func() string { return touched(before, p.infra(name)) })
	r.wantOutside(1, "after a restart beside one machine")
}

func checkRestartDeleting(r *run) {
	p, name, _ := r.machine()
	p.deleteMachine(name)
	r.restart()
	p.untilInfraGone(name)
	p.wantNothingOutside()
}
