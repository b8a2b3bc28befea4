// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"k8s.io/apimachinery/pkg/api/resource"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

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
