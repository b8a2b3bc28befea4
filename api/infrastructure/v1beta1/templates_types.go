// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1alpha1 "github.com/outrigger/outrigger/api/infrastructure/v1alpha1"
)

// DockerClusterTemplate is what DockerClusters are made from. Its spec cannot change: make
// another one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=dockerclustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DockerClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec infrav1alpha1.DockerClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// DockerClusterTemplateList is a list of DockerClusterTemplates.
//
// +kubebuilder:object:root=true
type DockerClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerClusterTemplate `json:"items"`
}

// DockerMachineTemplate is what DockerMachines are made from. Its spec cannot change: make
// another one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=dockermachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DockerMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   infrav1alpha1.DockerMachineTemplateSpec `json:"spec,omitempty,omitzero"`
	Status infrav1alpha1.MachineTemplateStatus     `json:"status,omitempty,omitzero"`
}

// DockerMachineTemplateList is a list of DockerMachineTemplates.
//
// +kubebuilder:object:root=true
type DockerMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerMachineTemplate `json:"items"`
}

// DockerMachinePoolTemplate is what DockerMachinePools are made from. Its spec cannot change: make
// another one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=dockermachinepooltemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DockerMachinePoolTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec infrav1alpha1.DockerMachinePoolTemplateSpec `json:"spec,omitempty,omitzero"`
}

// DockerMachinePoolTemplateList is a list of DockerMachinePoolTemplates.
//
// +kubebuilder:object:root=true
type DockerMachinePoolTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerMachinePoolTemplate `json:"items"`
}
