// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1alpha1 "github.com/outrigger/outrigger/api/infrastructure/v1alpha1"
)

// DockerCluster is what a cluster has at a Docker Engine besides its machines:
// a network and a load balancer for its control plane.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=dockerclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.v1beta2.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.controlPlaneEndpoint.port`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.v1beta2.conditions[?(@.type=="Ready")].reason`
type DockerCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   infrav1alpha1.DockerClusterSpec   `json:"spec,omitempty,omitzero"`
	Status infrav1alpha1.DockerClusterStatus `json:"status,omitempty,omitzero"`
}

// DockerClusterList is a list of DockerClusters.
//
// +kubebuilder:object:root=true
type DockerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerCluster `json:"items"`
}
