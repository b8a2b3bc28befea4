// SPDX-License-Identifier: Apache-2.0

package v1beta1

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
