// SPDX-License-Identifier: Apache-2.0

package conformance

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

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
