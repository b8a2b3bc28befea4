// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// observed sets the status's observedGeneration.
func observed(o object, generation int64) {
	switch o := o.(type) {
	case InfraCluster:
		_, status := o.ContractCluster()
		status.ObservedGeneration = generation
	case InfraMachine:
		_, status := o.ContractMachine()
		status.ObservedGeneration = generation
	case InfraPool:
		_, status := o.ContractPool()
		status.ObservedGeneration = generation
	}
	all := make([]metav1.Condition, 0, len(o.GetConditions()))
	for _, c := range o.GetConditions() {
		c.ObservedGeneration = generation
		all = append(all, c)
	}
	o.SetConditions(all)
}

func provisioned(i infrav1.Initialization) bool { return i.Provisioned != nil && *i.Provisioned }

func yes() infrav1.Initialization {
	is := true
	return infrav1.Initialization{Provisioned: &is}
}
