// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

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
