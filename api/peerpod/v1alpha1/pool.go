// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodVMPool keeps VMs that have booted and wait for a pod. A pod that one of them fits
// takes it in place of a VM of its own; each VM serves one pod, once.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=podvmpools,singular=podvmpool,shortName=pvp,scope=Cluster,categories=all
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Starting",type=integer,JSONPath=`.status.starting`
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.claimed`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.minReady`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxReady`
// +kubebuilder:printcolumn:name="Hits",type=integer,JSONPath=`.status.hits`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Type",type=string,priority=1,JSONPath=`.spec.instanceType`
// +kubebuilder:printcolumn:name="Provider",type=string,priority=1,JSONPath=`.spec.cloudProvider`
// +kubebuilder:printcolumn:name="Cost/h",type=string,priority=1,JSONPath=`.status.costPerHour`
// +kubebuilder:printcolumn:name="Error",type=string,priority=1,JSONPath=`.status.lastError.message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="the name is a part of the names of the pool's VMs: at most 50 characters"
type PodVMPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PodVMPoolSpec   `json:"spec"`
	Status PodVMPoolStatus `json:"status,omitempty"`
}

// PodVMPoolSpec says what VMs there are to be, and for which pods. VMs of former values
// are replaced; those that run pods stay.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReady) || self.minReady <= self.maxReady",message="minReady is more than maxReady"
type PodVMPoolSpec struct {
	// cloudProvider is the name of the provider; empty means the one that CLOUD_PROVIDER in ConfigMap peer-pods-cm names.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	CloudProvider string `json:"cloudProvider,omitempty"`

	// instanceType is the cloud's name of a type; with it vcpus, memoryMiB and gpus are ignored by the provider. Empty, without them, is the provider's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstanceType string `json:"instanceType,omitempty"`

	// vcpus is the number of virtual CPUs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	VCPUs int64 `json:"vcpus,omitempty"`

	// memoryMiB is the memory in MiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// gpus is the number of GPUs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	GPUs int64 `json:"gpus,omitempty"`

	// arch is the architecture, a GOARCH name. It must be that of the nodes whose pods are to use the pool.
	// +optional
	// +kubebuilder:default=amd64
	// +kubebuilder:validation:MaxLength=16
	Arch string `json:"arch,omitempty"`

	// image replaces the configured image of pod VMs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// zones are where the VMs are, as many in each of them as in the others. A pod with volumes takes one of its volumes' zone, others take one of their node's zone first. Empty is the provider's choice.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Zones []string `json:"zones,omitempty"`

	// images are container images that a VM pulls before it waits, so that a pod with one of them starts without. They need no credentials.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^[^\s,]+$`
	Images []string `json:"images,omitempty"`

	// minReady is how many VMs always wait for a pod.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReady int32 `json:"minReady"`

	// maxReady is how many VMs may wait at most; the number follows the pods of the last minutes. Empty is minReady.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxReady *int32 `json:"maxReady,omitempty"`

	// maxAge is how long a VM waits before another replaces it; empty is for ever.
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`

	// standby is how the VMs wait: running, or stopped after they have booted once, so that a pod starts one and it boots again. Most clouds ask for the disk alone while a VM is stopped.
	// +optional
	// +kubebuilder:default=running
	// +kubebuilder:validation:Enum=running;stopped
	Standby string `json:"standby,omitempty"`

	// podSelector names labels that a pod must have to take a VM of this pool.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	PodSelector map[string]string `json:"podSelector,omitempty"`

	// nodeSelector names labels that a node must have for its pods to take a VM of this pool.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// How the VMs of a pool wait.
const (
	StandbyRunning = "running"
	StandbyStopped = "stopped"
)

// PodVMPoolStatus is what there is.
type PodVMPoolStatus struct {
	// observedGeneration is the generation of the spec that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// template names the spec and the provider's settings with which VMs are made now. VMs of another one are not given to pods.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Template string `json:"template,omitempty"`

	// ready is how many VMs wait for a pod.
	// +optional
	Ready int32 `json:"ready"`
	// starting is how many VMs are being made or boot.
	// +optional
	Starting int32 `json:"starting"`
	// claimed is how many VMs run a pod.
	// +optional
	Claimed int32 `json:"claimed"`
	// hits is how many pods have taken a VM, ever.
	// +optional
	Hits int64 `json:"hits"`
	// lastHit is when the last one did.
	// +optional
	LastHit *metav1.MicroTime `json:"lastHit,omitempty"`

	// costPerHour is what the VMs that wait cost while they run, in the currency of the provider's prices; empty where it does not know the price of each.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	CostPerHour string `json:"costPerHour,omitempty"`

	// lastError is why the last VM could not be made or used; it goes with the next one that can.
	// +optional
	LastError *Error `json:"lastError,omitempty"`

	// conditions: Ready is True while minReady VMs wait.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Most returns how many VMs may wait.
func (s *PodVMPoolSpec) Most() int32 {
	if s.MaxReady == nil {
		return s.MinReady
	}
	return *s.MaxReady
}

// PodVMPoolList is a list of PodVMPools.
//
// +kubebuilder:object:root=true
type PodVMPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodVMPool `json:"items"`
}
