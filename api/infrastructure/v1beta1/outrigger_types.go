// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// OutriggerCluster is a cluster whose machines are instances of an Outrigger
// provider. It makes nothing itself: the endpoint of the control plane is one
// that somebody else keeps.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=outriggerclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.v1beta2.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.controlPlaneEndpoint.port`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.v1beta2.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.ready) || !oldSelf.status.ready || !has(oldSelf.spec) || !has(oldSelf.spec.provider) || (has(self.spec) && has(self.spec.provider) && self.spec.provider == oldSelf.spec.provider)",message="spec.provider cannot change once the cluster is provisioned: its machines are there; make another cluster"
type OutriggerCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OutriggerClusterSpec `json:"spec,omitempty,omitzero"`
	Status ClusterStatus        `json:"status,omitempty,omitzero"`
}

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

// OutriggerClusterList is a list of OutriggerClusters.
//
// +kubebuilder:object:root=true
type OutriggerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OutriggerCluster `json:"items"`
}

// OutriggerMachine is a machine that is an instance of an Outrigger provider.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=outriggermachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.metadata.ownerReferences[?(@.kind=="Machine")].name`
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.v1beta2.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.v1beta2.conditions[?(@.type=="Ready")].reason`
type OutriggerMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OutriggerMachineSpec `json:"spec,omitempty,omitzero"`
	Status MachineStatus        `json:"status,omitempty,omitzero"`
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

// OutriggerMachineList is a list of OutriggerMachines.
//
// +kubebuilder:object:root=true
type OutriggerMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OutriggerMachine `json:"items"`
}
