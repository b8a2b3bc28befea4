// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// What templates have is written also where it is empty, by the version that is stored and by
// the other: a patch of a ClusterClass adds to it, and is an error where it is missing.

// DockerClusterTemplate is what DockerClusters are made from. Its spec cannot change: make
// another one.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=dockerclustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DockerClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec DockerClusterTemplateSpec `json:"spec"`
}

// DockerClusterTemplateSpec holds the template.
type DockerClusterTemplateSpec struct {
	// template of a DockerCluster.
	// +required
	Template DockerClusterTemplateResource `json:"template"`
}

// DockerClusterTemplateResource is the DockerCluster that is made.
type DockerClusterTemplateResource struct {
	// metadata is added to that of the object.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the object.
	// +optional
	Spec DockerClusterSpec `json:"spec"`
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
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=dockermachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DockerMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec   DockerMachineTemplateSpec `json:"spec"`
	Status MachineTemplateStatus     `json:"status,omitempty,omitzero"`
}

// DockerMachineTemplateSpec holds the template.
type DockerMachineTemplateSpec struct {
	// template of a DockerMachine.
	// +required
	Template DockerMachineTemplateResource `json:"template"`
}

// DockerMachineTemplateResource is the DockerMachine that is made.
type DockerMachineTemplateResource struct {
	// metadata is added to that of the object.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the object.
	// +optional
	Spec DockerMachineSpec `json:"spec"`
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
// +kubebuilder:storageversion
// +kubebuilder:resource:path=dockermachinepooltemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DockerMachinePoolTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec DockerMachinePoolTemplateSpec `json:"spec"`
}

// DockerMachinePoolTemplateSpec holds the template.
type DockerMachinePoolTemplateSpec struct {
	// template of a DockerMachinePool.
	// +required
	Template DockerMachinePoolTemplateResource `json:"template"`
}

// DockerMachinePoolTemplateResource is the DockerMachinePool that is made.
type DockerMachinePoolTemplateResource struct {
	// metadata is added to that of the object.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the object.
	// +optional
	Spec DockerMachinePoolSpec `json:"spec"`
}

// DockerMachinePoolTemplateList is a list of DockerMachinePoolTemplates.
//
// +kubebuilder:object:root=true
type DockerMachinePoolTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerMachinePoolTemplate `json:"items"`
}

// OutriggerClusterTemplate is what OutriggerClusters are made from. Its spec cannot change: make
// another one.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=outriggerclustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OutriggerClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec OutriggerClusterTemplateSpec `json:"spec"`
}

// OutriggerClusterTemplateSpec holds the template.
type OutriggerClusterTemplateSpec struct {
	// template of a OutriggerCluster.
	// +required
	Template OutriggerClusterTemplateResource `json:"template"`
}

// OutriggerClusterTemplateResource is the OutriggerCluster that is made.
type OutriggerClusterTemplateResource struct {
	// metadata is added to that of the object.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the object.
	// +optional
	Spec OutriggerClusterSpec `json:"spec"`
}

// OutriggerClusterTemplateList is a list of OutriggerClusterTemplates.
//
// +kubebuilder:object:root=true
type OutriggerClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OutriggerClusterTemplate `json:"items"`
}

// OutriggerMachineTemplate is what OutriggerMachines are made from. Its spec cannot change: make
// another one.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=outriggermachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OutriggerMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec   OutriggerMachineTemplateSpec `json:"spec"`
	Status MachineTemplateStatus        `json:"status,omitempty,omitzero"`
}

// OutriggerMachineTemplateSpec holds the template.
type OutriggerMachineTemplateSpec struct {
	// template of a OutriggerMachine.
	// +required
	Template OutriggerMachineTemplateResource `json:"template"`
}

// OutriggerMachineTemplateResource is the OutriggerMachine that is made.
type OutriggerMachineTemplateResource struct {
	// metadata is added to that of the object.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the object.
	// +optional
	Spec OutriggerMachineSpec `json:"spec"`
}

// OutriggerMachineTemplateList is a list of OutriggerMachineTemplates.
//
// +kubebuilder:object:root=true
type OutriggerMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OutriggerMachineTemplate `json:"items"`
}

// ContractTemplate is what the autoscaler reads.
func (t *DockerMachineTemplate) ContractTemplate() *MachineTemplateStatus { return &t.Status }

// ContractTemplate is what the autoscaler reads.
func (t *OutriggerMachineTemplate) ContractTemplate() *MachineTemplateStatus { return &t.Status }
