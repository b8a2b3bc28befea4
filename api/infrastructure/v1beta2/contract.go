// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Initialization says what is there for the first time.
//
// +kubebuilder:validation:MinProperties=1
type Initialization struct {
	// provisioned is true once the infrastructure is complete. It never turns
	// false again: later trouble is in the conditions.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// Status is what every infrastructure has in its status.
type Status struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// initialization says what is there for the first time.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`

	// ready is initialization.provisioned in the words of earlier contracts, and what
	// Cluster API takes the readiness of a pool from.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// conditions describe the object for its whole life. Ready sums them up.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterSpec is what Cluster API reads of the spec of a cluster's infrastructure.
type ClusterSpec struct {
	// controlPlaneEndpoint is where the API server of the cluster is reached. It
	// is filled in by the controller where it makes a load balancer, and cannot
	// change once it is set.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
}

// ClusterStatus is what Cluster API reads of the status of a cluster's
// infrastructure.
type ClusterStatus struct {
	Status `json:",inline"`

	// failureDomains are those that machines can be spread over.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
}

// MachineSpec is what Cluster API reads of the spec of a machine's infrastructure.
type MachineSpec struct {
	// providerID is spec.providerID of the machine's Node. It is filled in by
	// the controller and cannot change.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
}

// MachineStatus is what Cluster API reads of the status of a machine's
// infrastructure, and how far the controller is.
type MachineStatus struct {
	Status `json:",inline"`

	// addresses of the machine.
	// +optional
	Addresses clusterv1.MachineAddresses `json:"addresses,omitempty"`

	// failureDomain is the one that the machine is in.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// step is the last step that was begun on the way to a machine that is complete.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Step string `json:"step,omitempty"`
}

// PoolSpec is what Cluster API reads of the spec of a machine pool's infrastructure.
type PoolSpec struct {
	// providerID of the pool itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

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
	// is zero: one that is missing is taken for the last number that was there.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// instances are the machines of the pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Instances []PoolInstance `json:"instances,omitempty"`

	// infrastructureMachineKind is the kind of the object that each machine of
	// the pool has.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	InfrastructureMachineKind string `json:"infrastructureMachineKind,omitempty"`
}

// PoolInstance is one machine of a pool.
//
// +kubebuilder:validation:MinProperties=1
type PoolInstance struct {
	// instanceName is its name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	InstanceName string `json:"instanceName,omitempty"`

	// providerID is spec.providerID of its Node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// version of Kubernetes on it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// ready is true when it is complete.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// addresses of it.
	// +optional
	Addresses clusterv1.MachineAddresses `json:"addresses,omitempty"`
}

// MachineTemplateStatus tells the autoscaler what a machine of a template
// would be, when there is none to look at.
type MachineTemplateStatus struct {
	// capacity is what a machine of this template has.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo is what a machine of this template is.
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
}

// NodeInfo is what kind of machine runs a Node.
//
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// architecture as in the label kubernetes.io/arch.
	// +optional
	// +kubebuilder:validation:Enum=amd64;arm64;s390x;ppc64le
	Architecture string `json:"architecture,omitempty"`

	// operatingSystem as in the label kubernetes.io/os.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	OperatingSystem string `json:"operatingSystem,omitempty"`
}
