// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// DockerMachine is a machine that is a container of a Docker Engine.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=dockermachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.metadata.ownerReferences[?(@.kind=="Machine")].name`
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.v1beta2.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.v1beta2.conditions[?(@.type=="Ready")].reason`
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

// DockerMachineList is a list of DockerMachines.
//
// +kubebuilder:object:root=true
type DockerMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerMachine `json:"items"`
}
