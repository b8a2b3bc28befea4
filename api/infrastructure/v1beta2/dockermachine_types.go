// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DockerMachine is a machine that is a container of a Docker Engine.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=dockermachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.metadata.ownerReferences[?(@.kind=="Machine")].name`
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Step",type=string,priority=1,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
type DockerMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DockerMachineSpec `json:"spec,omitempty,omitzero"`
	Status MachineStatus     `json:"status,omitempty,omitzero"`
}

// DockerMachineSpec is what is wanted of a DockerMachine.
type DockerMachineSpec struct {
	MachineSpec    `json:",inline"`
	DockerNodeSpec `json:",inline"`
}

// DockerNodeSpec is how the container of a machine is made.
type DockerNodeSpec struct {
	// customImage is the node image, instead of the manager's default for the
	// version of Kubernetes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	CustomImage string `json:"customImage,omitempty"`

	// preLoadImages are images of the Docker Engine that are copied into the
	// machine before Kubernetes starts there.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	PreLoadImages []string `json:"preLoadImages,omitempty"`

	// extraMounts are files and folders of the Docker Engine's host in the
	// machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ExtraMounts []Mount `json:"extraMounts,omitempty"`

	// bootstrapTimeout is how long the start of Kubernetes on the machine may
	// take before the condition says that it failed. Default 5m.
	// +optional
	BootstrapTimeout *metav1.Duration `json:"bootstrapTimeout,omitempty"`

	// resources limit what the container takes.
	// +optional
	Resources DockerResources `json:"resources,omitempty,omitzero"`
}

// DockerResources limit what a container takes of its host.
//
// +kubebuilder:validation:MinProperties=1
type DockerResources struct {
	// cpu is a number of processors, such as 2 or 500m.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// memory is a number of bytes, such as 2Gi.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Mount is a file or folder of the host in a container.
type Mount struct {
	// containerPath is where it is in the container.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ContainerPath string `json:"containerPath,omitempty"`

	// hostPath is where it is on the host. One that is not there is an error;
	// symbolic links are followed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	HostPath string `json:"hostPath,omitempty"`

	// readOnly keeps the container from writing to it.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
}

// DockerMachineList is a list of DockerMachines.
//
// +kubebuilder:object:root=true
type DockerMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerMachine `json:"items"`
}

// ContractMachine is the part that Cluster API reads.
func (m *DockerMachine) ContractMachine() (*MachineSpec, *MachineStatus) {
	return &m.Spec.MachineSpec, &m.Status
}

// ContractStatus is the part that is the same for all infrastructure.
func (m *DockerMachine) ContractStatus() *Status { return &m.Status.Status }
