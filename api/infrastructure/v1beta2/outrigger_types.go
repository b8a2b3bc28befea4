// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// OutriggerCluster is a cluster whose machines are instances of an Outrigger
// provider. It makes nothing itself: the endpoint of the control plane is one
// that somebody else keeps.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=outriggerclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.controlPlaneEndpoint.port`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
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
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
}

// OutriggerClusterList is a list of OutriggerClusters.
//
// +kubebuilder:object:root=true
type OutriggerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OutriggerCluster `json:"items"`
}

// ContractCluster is the part that Cluster API reads.
func (c *OutriggerCluster) ContractCluster() (*ClusterSpec, *ClusterStatus) {
	return &c.Spec.ClusterSpec, &c.Status
}

// ContractStatus is the part that is the same for all infrastructure.
func (c *OutriggerCluster) ContractStatus() *Status { return &c.Status.Status }

// OutriggerMachine is a machine that is an instance of an Outrigger provider.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=outriggermachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.metadata.ownerReferences[?(@.kind=="Machine")].name`
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Step",type=string,priority=1,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
type OutriggerMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OutriggerMachineSpec `json:"spec,omitempty,omitzero"`
	Status MachineStatus        `json:"status,omitempty,omitzero"`
}

// OutriggerMachineSpec is what is wanted of an OutriggerMachine.
//
// +kubebuilder:validation:XValidation:rule="!has(self.instanceType) || (!has(self.vcpus) && !has(self.memory) && !has(self.gpus))",message="instanceType already says how large the machine is: remove vcpus, memory and gpus, or instanceType"
type OutriggerMachineSpec struct {
	MachineSpec `json:",inline"`

	// instanceType is the cloud's name of a type. Without it and without sizes
	// it is the provider's default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	InstanceType string `json:"instanceType,omitempty"`

	// vcpus is the least number of virtual processors.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	VCPUs int64 `json:"vcpus,omitempty"`

	// memory is the least memory, such as 4Gi.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`

	// gpus is the number of GPUs.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	GPUs int64 `json:"gpus,omitempty"`

	// arch is the architecture; without one it is that of the image.
	// +optional
	// +kubebuilder:validation:Enum=amd64;arm64;s390x;ppc64le
	Arch string `json:"arch,omitempty"`

	// image replaces the image that the provider is configured with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Image string `json:"image,omitempty"`

	// tags are given to everything that is made for the machine, beside those
	// by which it is found again.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Tags map[string]string `json:"tags,omitempty"`
}

// OutriggerMachineList is a list of OutriggerMachines.
//
// +kubebuilder:object:root=true
type OutriggerMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OutriggerMachine `json:"items"`
}

// ContractMachine is the part that Cluster API reads.
func (m *OutriggerMachine) ContractMachine() (*MachineSpec, *MachineStatus) {
	return &m.Spec.MachineSpec, &m.Status
}

// ContractStatus is the part that is the same for all infrastructure.
func (m *OutriggerMachine) ContractStatus() *Status { return &m.Status.Status }
