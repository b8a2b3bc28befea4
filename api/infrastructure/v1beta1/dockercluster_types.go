// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	Spec   DockerClusterSpec `json:"spec,omitempty,omitzero"`
	Status ClusterStatus     `json:"status,omitempty,omitzero"`
}

// DockerClusterSpec is what is wanted of a DockerCluster.
type DockerClusterSpec struct {
	ClusterSpec `json:",inline"`

	// failureDomains to spread machines over.
	// +optional
	FailureDomains map[string]FailureDomain `json:"failureDomains,omitempty"`

	// loadbalancerImage is the image of the load balancer, instead of the
	// manager's default.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	LoadbalancerImage string `json:"loadbalancerImage,omitempty"`

	// loadBalancer is loadbalancerImage in the words of Cluster API's own
	// provider.
	// +optional
	LoadBalancer DockerLoadBalancer `json:"loadBalancer,omitempty,omitzero"`
}

// DockerLoadBalancer is the image of a load balancer in two parts.
type DockerLoadBalancer struct {
	// imageRepository is the registry and folder of the image, whose name is
	// haproxy.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ImageRepository string `json:"imageRepository,omitempty"`

	// imageTag of the image.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ImageTag string `json:"imageTag,omitempty"`

	// customHAProxyConfigTemplateRef names a ConfigMap of the same namespace, whose
	// key value has a Go template of HAProxy's configuration.
	// +optional
	CustomHAProxyConfigTemplateRef ConfigMapReference `json:"customHAProxyConfigTemplateRef,omitempty,omitzero"`
}

// ConfigMapReference names a ConfigMap of the same namespace.
type ConfigMapReference struct {
	// name of the ConfigMap.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// DockerClusterList is a list of DockerClusters.
//
// +kubebuilder:object:root=true
type DockerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DockerCluster `json:"items"`
}
