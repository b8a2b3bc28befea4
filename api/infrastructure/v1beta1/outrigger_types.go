// SPDX-License-Identifier: Apache-2.0

package v1beta1

import infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"

// OutriggerClusterSpec is what is wanted of an OutriggerCluster.
type OutriggerClusterSpec struct {
	ClusterSpec `json:",inline"`

	// provider that the machines are instances of, by its name: one that the manager has
	// loaded (--provider, --more-providers). Without it it is the manager's default. It
	// cannot change once the cluster is provisioned.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Provider string `json:"provider,omitempty"`

	// failureDomains to spread machines over, in the words of the provider.
	// +optional
	FailureDomains map[string]FailureDomain `json:"failureDomains,omitempty"`
}

// OutriggerMachineSpec is what is wanted of an OutriggerMachine.
type OutriggerMachineSpec struct {
	infrav1.OutriggerMachineSpec `json:",inline"`

	// failureDomain is the one that the machine is in. It is filled in by the
	// controller; the one that is wanted is in the spec of the Machine.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain *string `json:"failureDomain,omitempty"`
}
