// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
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
	ExtraMounts []infrav1.Mount `json:"extraMounts,omitempty"`

	// bootstrapTimeout is how long the start of Kubernetes on the machine may
	// take before the condition says that it failed. Default 5m.
	// +optional
	BootstrapTimeout *metav1.Duration `json:"bootstrapTimeout,omitempty"`
}

// DockerMachinePoolSpec is what is wanted of a DockerMachinePool.
type DockerMachinePoolSpec struct {
	PoolSpec `json:",inline"`

	// template is how each container is made.
	// +optional
	Template DockerNodeSpec `json:"template"`
}
