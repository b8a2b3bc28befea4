// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DockerMachinePool is a number of machines that are alike, each a DockerMachine.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=dockermachinepools,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="MachinePool",type=string,JSONPath=`.metadata.ownerReferences[?(@.kind=="MachinePool")].name`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DockerMachinePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DockerMachinePoolSpec `json:"spec,omitempty,omitzero"`
	Status PoolStatus            `json:"status,omitempty,omitzero"`
}

// DockerMachinePoolSpec is what is wanted of a DockerMachinePool.
type DockerMachinePoolSpec struct {
	PoolSpec `json:",inline"`

	// template is how each container is made.
	// +optional
	Template DockerNodeSpec `json:"template"`
}

// DockerMachinePoolList is a list of DockerMachinePools.
//
// +kubebuilder:object:root=true
type DockerMachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerMachinePool `json:"items"`
}

// ContractPool is the part that Cluster API reads.
func (p *DockerMachinePool) ContractPool() (*PoolSpec, *PoolStatus) {
	return &p.Spec.PoolSpec, &p.Status
}

// ContractStatus is the part that is the same for all infrastructure.
func (p *DockerMachinePool) ContractStatus() *Status { return &p.Status.Status }
