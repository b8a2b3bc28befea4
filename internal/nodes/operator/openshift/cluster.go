// SPDX-License-Identifier: Apache-2.0

package openshift

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterOperator is where an operator says how it is.
//
// +kubebuilder:object:root=true
type ClusterOperator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has no fields; the cluster insists on an empty one.
	Spec   ClusterOperatorSpec   `json:"spec"`
	Status ClusterOperatorStatus `json:"status,omitempty"`
}

// ClusterOperatorSpec has no fields.
type ClusterOperatorSpec struct{}

// ClusterOperatorStatus is what an operator says. The cluster merges Conditions
// by type; Versions and RelatedObjects are replaced whole.
type ClusterOperatorStatus struct {
	Conditions     []ClusterOperatorCondition `json:"conditions,omitempty"`
	Versions       []OperandVersion           `json:"versions,omitempty"`
	RelatedObjects []ObjectReference          `json:"relatedObjects,omitempty"`
}

// ConditionType is the name of a condition.
type ConditionType string

// Conditions that each operator has.
const (
	Available   ConditionType = "Available"
	Progressing ConditionType = "Progressing"
	Degraded    ConditionType = "Degraded"
	Upgradeable ConditionType = "Upgradeable"
)

// ClusterOperatorCondition is a condition.
type ClusterOperatorCondition struct {
	Type               ConditionType          `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
}

// OperandVersion is a version that has been reached.
type OperandVersion struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// ObjectReference is an object that belongs to an operator. Group and namespace
// may be empty.
type ObjectReference struct {
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// ClusterVersion says which release the cluster runs.
//
// +kubebuilder:object:root=true
type ClusterVersion struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status ClusterVersionStatus `json:"status"`
}

// ClusterVersionStatus has the release that the cluster is to run.
type ClusterVersionStatus struct {
	Desired Release `json:"desired"`
}

// Release is a release.
type Release struct {
	Version string `json:"version"`
}
