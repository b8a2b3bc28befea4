// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// DockerMachinePoolSpec is what is wanted of a DockerMachinePool.
type DockerMachinePoolSpec struct {
	PoolSpec `json:",inline"`

	// template is how each container is made.
	// +optional
	Template DockerNodeSpec `json:"template"`
}
