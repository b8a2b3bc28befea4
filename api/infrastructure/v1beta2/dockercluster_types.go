// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// DockerCluster is what a cluster has at a Docker Engine besides its machines:
// a network and a load balancer for its control plane.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=dockerclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.controlPlaneEndpoint.port`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
type DockerCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DockerClusterSpec `json:"spec,omitempty,omitzero"`
	Status ClusterStatus     `json:"status,omitempty,omitzero"`
}

// DockerClusterSpec is what is wanted of a DockerCluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.disableLoadBalancer) || !self.disableLoadBalancer || (!has(self.loadbalancerImage) && !has(self.loadBalancer))",message="a cluster without load balancer has no image for one: remove loadbalancerImage and loadBalancer, or disableLoadBalancer"
// +kubebuilder:validation:XValidation:rule="!has(self.loadbalancerImage) || !has(self.loadBalancer)",message="loadbalancerImage and loadBalancer say the same: keep one of them"
type DockerClusterSpec struct {
	ClusterSpec `json:",inline"`

	// failureDomains to spread machines over. A Docker Engine has none: they
	// are labels of the containers.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// loadbalancerImage is the image of the load balancer, instead of the
	// manager's default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	LoadbalancerImage string `json:"loadbalancerImage,omitempty"`

	// loadBalancer is loadbalancerImage in the words of Cluster API's own
	// provider.
	// +optional
	LoadBalancer DockerLoadBalancer `json:"loadBalancer,omitempty,omitzero"`

	// disableLoadBalancer leaves the load balancer out: controlPlaneEndpoint is
	// one that somebody else keeps, or without one that of the first machine of
	// the control plane.
	// +optional
	DisableLoadBalancer bool `json:"disableLoadBalancer,omitempty"`

	// subnet is the IPv4 range of the cluster's network, such as 172.30.0.0/24.
	// Without one the Docker Engine chooses.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Subnet string `json:"subnet,omitempty"`
}

// DockerLoadBalancer is the image of a load balancer in two parts.
//
// +kubebuilder:validation:MinProperties=1
type DockerLoadBalancer struct {
	// imageRepository is the registry and folder of the image, whose name is
	// haproxy.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ImageRepository string `json:"imageRepository,omitempty"`

	// imageTag of the image.
	// +optional
	// +kubebuilder:validation:MinLength=1
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
	// +kubebuilder:validation:MinLength=1
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

// ContractCluster is the part that Cluster API reads.
func (c *DockerCluster) ContractCluster() (*ClusterSpec, *ClusterStatus) {
	return &c.Spec.ClusterSpec, &c.Status
}

// ContractStatus is the part that is the same for all infrastructure.
func (c *DockerCluster) ContractStatus() *Status { return &c.Status.Status }
