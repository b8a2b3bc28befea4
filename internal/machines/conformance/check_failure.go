// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var failureChecks = []Check{
	{"machine-failure-shown", "The condition Ready of an InfraMachine that cannot be made says why.", []need{needsFailing}, func(r *run) {
		// The reason of a wait before the attempt does not count,
		// nor does a message that comes and goes: it has to stay for a while.
		fx, name := r.failing()
		fx.until(fx.Limits.Provision, "the condition Ready of an InfraMachine that cannot be made says why", func() string {
			infra := fx.infra(name)
			if infra == nil {
				return "the InfraMachine is gone"
			}
			c := condition(infra, clusterv1.ReadyCondition)
			switch {
			case provisioned(infra):
				fx.Fatalf("the InfraMachine that is not to be possible is provisioned: is the file's one really refused?")
			case c == nil || c.Status == metav1.ConditionTrue:
				return "there is no condition Ready that is not True"
			case c.Reason == "" || c.Message == "":
				return "its reason is " + c.Reason + ", its message is empty"
			}
			return ""
		})
	}},
	{"machine-failure-quiet", "An InfraMachine that cannot be made is not tried in a loop: its status comes to rest.", []need{needsFailing}, func(r *run) {
		fx, name := r.failing()
		for range 6 { // growing pauses are not a loop
			if !fx.writtenWithin(fx.infra(name), fx.machineReader(name)) {
				return
			}
		}
		r.Errorf("an InfraMachine that cannot be made is written again and again: within %s each its resourceVersion changed six times. A cloud throttles or blocks clients that ask that often", r.Limits.Quiet)
	}},
	{"machine-failure-delete", "An InfraMachine that cannot be made can be deleted, and leaves nothing.", []need{needsFailing}, func(r *run) {
		fx, name := r.failing()
		fx.while("the failure", func() string { return "" })
		fx.wantDeleted(name)
	}},
}

// failing makes a machine that cannot be provisioned, and waits until its
// conditions say so.
func (r *run) failing() (fx *fixture, name string) {
	fx, name = r.provisionedCluster(), "m-"+unique()
	fx.addSecret(name)
	fx.addOwner(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name })
	fx.addInfra(fx.Objects.FailingMachine, name, []change{fx.ownedByMachine})
	fx.untilBegun(name)
	return fx, name
}
