// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// The contract's own small types are written out here, because Cluster API
// drops the package that has them before it is likely that nobody has such
// objects any more. What both contracts have alike is package v1beta2's.

// APIEndpoint is where an API server is reached.
type APIEndpoint struct {
	// host name or address.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host"`

	// port it listens on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// FailureDomain is one that machines can be spread over.
type FailureDomain struct {
	// controlPlane is true when machines of a control plane may be there.
	// +optional
	ControlPlane bool `json:"controlPlane,omitempty"`

	// attributes in the words of the infrastructure.
	// +optional
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Condition is one aspect of the state of an object, as contract v1beta1 has it.
type Condition struct {
	// type in CamelCase.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Type string `json:"type"`

	// status is True, False or Unknown.
	// +required
	Status corev1.ConditionStatus `json:"status"`

	// severity of a status that is False.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Severity string `json:"severity,omitempty"`

	// lastTransitionTime is when the status changed.
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`

	// reason in CamelCase.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// message for a human.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}

// V1Beta2Status has conditions as contract v1beta2 has them.
type V1Beta2Status struct {
	// conditions describe the object for its whole life. Ready sums them up.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Status is what Cluster API reads of the status of any infrastructure.
type Status struct {
	// ready is true when the infrastructure is complete.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// failureReason of a failure that will not go away, in one word. Outrigger
	// sets none: see conditions.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureReason *string `json:"failureReason,omitempty"`

	// failureMessage of a failure that will not go away. Outrigger sets none:
	// see conditions.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	FailureMessage *string `json:"failureMessage,omitempty"`

	// conditions in the words of contract v1beta1.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Conditions []Condition `json:"conditions,omitempty"`

	// v1beta2 has what is new in contract v1beta2.
	// +optional
	V1Beta2 *V1Beta2Status `json:"v1beta2,omitempty"`
}

// ClusterSpec is what Cluster API reads of the spec of a cluster's infrastructure.
type ClusterSpec struct {
	// controlPlaneEndpoint is where the API server of the cluster is reached.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitzero"`
}

// ClusterStatus is what Cluster API reads of the status of a cluster's
// infrastructure.
type ClusterStatus struct {
	Status `json:",inline"`

	// failureDomains are those that machines can be spread over.
	// +optional
	FailureDomains map[string]FailureDomain `json:"failureDomains,omitempty"`
}

// MachineSpec is what Cluster API reads of the spec of a machine's infrastructure.
type MachineSpec struct {
	// providerID is spec.providerID of the machine's Node.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID *string `json:"providerID,omitempty"`

	// failureDomain is the one that the machine is in. It is filled in by the
	// controller; the one that is wanted is in the spec of the Machine.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain *string `json:"failureDomain,omitempty"`
}

// MachineStatus is what Cluster API reads of the status of a machine's
// infrastructure.
type MachineStatus struct {
	Status `json:",inline"`

	// addresses of the machine.
	// +optional
	Addresses clusterv1.MachineAddresses `json:"addresses,omitempty"`
}

// PoolSpec is what Cluster API reads of the spec of a machine pool's infrastructure.
type PoolSpec struct {
	// providerID of the pool itself.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID *string `json:"providerID,omitempty"`

	// providerIDList has spec.providerID of the Node of each machine there is.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	ProviderIDList []string `json:"providerIDList,omitempty"`
}

// PoolStatus is what Cluster API reads of the status of a machine pool's
// infrastructure.
type PoolStatus struct {
	Status `json:",inline"`

	// replicas is the number of machines there are. It is written also when it
	// is zero.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// instances are the machines of the pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Instances []infrav1.PoolInstance `json:"instances,omitempty"`

	// infrastructureMachineKind is the kind of the object that each machine of
	// the pool has.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	InfrastructureMachineKind string `json:"infrastructureMachineKind,omitempty"`
}
