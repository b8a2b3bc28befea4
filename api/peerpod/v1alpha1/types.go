// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PeerPod is the claim of one sandbox on one instance of a cloud. It is made
// before the instance, with a finalizer, so that at no time an instance exists
// that nothing in the cluster knows.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=peerpods,singular=peerpod,shortName=pp,categories=all
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.podName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.cloudProvider`
// +kubebuilder:printcolumn:name="Instance",type=string,JSONPath=`.spec.instanceID`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Type",type=string,priority=1,JSONPath=`.status.instance.type`
// +kubebuilder:printcolumn:name="Zone",type=string,priority=1,JSONPath=`.status.instance.zone`
// +kubebuilder:printcolumn:name="Addresses",type=string,priority=1,JSONPath=`.status.instance.addresses`
// +kubebuilder:printcolumn:name="Pool",type=string,priority=1,JSONPath=`.spec.pool.name`
// +kubebuilder:printcolumn:name="Sandbox",type=string,priority=1,JSONPath=`.spec.sandboxID`
// +kubebuilder:printcolumn:name="Error",type=string,priority=1,JSONPath=`.status.lastError.message`
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.cloudProvider`
// +kubebuilder:selectablefield:JSONPath=`.spec.podUID`
type PeerPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PeerPodSpec   `json:"spec"`
	Status PeerPodStatus `json:"status,omitempty"`
}

// PeerPodSpec says what is claimed and for whom. Only instanceID changes in
// the life of a PeerPod, poolVM with it, and the claim of one that waits in a pool.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cloudProvider) || (has(self.cloudProvider) && self.cloudProvider == oldSelf.cloudProvider)",message="cloudProvider cannot change: the instance is at that provider"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.sandboxID) || (has(self.sandboxID) && self.sandboxID == oldSelf.sandboxID)",message="sandboxID cannot change: the instance is found by it"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterID) || (has(self.clusterID) && self.clusterID == oldSelf.clusterID)",message="clusterID cannot change: the instance is tagged with it"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.podUID) || (has(self.podUID) && self.podUID == oldSelf.podUID)",message="podUID cannot change: make another PeerPod"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.pool) == has(self.pool)",message="pool cannot come or go: make another PeerPod"
type PeerPodSpec struct {
	// cloudProvider is the name of the provider that has the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	CloudProvider string `json:"cloudProvider,omitempty"`

	// instanceID is the provider's id of the instance; empty until the instance is made.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	InstanceID string `json:"instanceID,omitempty"`

	// sandboxID is the idempotency key of the instance: the provider never makes two with one key, and lists the key with the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	SandboxID string `json:"sandboxID,omitempty"`

	// nodeName is the node whose adaptor asked for the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// podName is the pod that runs in the instance, in the namespace of this object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName,omitempty"`

	// podUID is the UID of that pod; empty when the adaptor could not learn it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	PodUID string `json:"podUID,omitempty"`

	// clusterID is the cluster's identity in the owner tags of the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterID string `json:"clusterID,omitempty"`

	// pool is what the instance has to do with a PodVMPool; absent for the instance of one pod.
	// +optional
	Pool *PoolMember `json:"pool,omitempty"`

	// poolVM is the PeerPod, as namespace/name, of the instance that this pod has taken from a pool.
	// +optional
	// +kubebuilder:validation:MaxLength=507
	PoolVM string `json:"poolVM,omitempty"`
}

// PoolMember is an instance as one of a PodVMPool.
//
// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name && self.template == oldSelf.template && self.authority == oldSelf.authority && has(self.standby) == has(oldSelf.standby) && (!has(self.standby) || self.standby == oldSelf.standby)",message="what the instance was made with cannot change: make another PeerPod"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.claim) || (has(self.claim) && self.claim == oldSelf.claim)",message="claim cannot change: an instance serves one pod, once"
type PoolMember struct {
	// name is that of the PodVMPool.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// template is the one of the pool, with which the instance was made; see PodVMPool.
	// +kubebuilder:validation:MaxLength=64
	Template string `json:"template"`
	// authority is the certificate, PEM, that issued the instance's own for the time in which it waits. Its key is thrown away.
	// +kubebuilder:validation:MaxLength=4096
	Authority string `json:"authority"`
	// standby is how the instance waits; empty means running. See PodVMPool.
	// +optional
	// +kubebuilder:validation:Enum=running;stopped
	Standby string `json:"standby,omitempty"`
	// zone is the one that the instance was asked for in; empty means the provider's choice.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Zone string `json:"zone,omitempty"`
	// claim is the pod that has taken the instance. It is never taken back.
	// +optional
	Claim *PoolClaim `json:"claim,omitempty"`
}

// PoolClaim names the PeerPod of the pod that took an instance of a pool.
type PoolClaim struct {
	// namespace is that of the PeerPod.
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
	// name is that of the PeerPod.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// time is when the pod took the instance.
	Time metav1.MicroTime `json:"time"`
}

// Phase is where the sandbox is in its life, in one word. Conditions say it
// exactly.
//
// +kubebuilder:validation:Enum=Pending;Connecting;Ready;Failed;Deleting
type Phase string

// Phases.
const (
	// PhasePending: claimed; the cloud has not answered with an instance yet.
	PhasePending Phase = "Pending"
	// PhaseConnecting: the instance is there; its agent is waited for.
	PhaseConnecting Phase = "Connecting"
	// PhaseReady: the pod's containers can be started.
	PhaseReady Phase = "Ready"
	// PhaseFailed: the last step failed; see lastError.
	PhaseFailed Phase = "Failed"
	// PhaseDeleting: the instance is being removed.
	PhaseDeleting Phase = "Deleting"
)

// Condition types.
const (
	// InstanceCreated: the cloud has made the instance.
	ConditionInstanceCreated = "InstanceCreated"
	// Connected: the node reaches the agent in the instance.
	ConditionConnected = "Connected"
	// Ready: the sandbox can be used.
	ConditionReady = "Ready"
	// Deleting: the removal of the instance goes on; its reason says what it waits for.
	ConditionDeleting = "Deleting"
	// Attested: the pod's key broker has accepted the evidence of the VM, as the VM says.
	ConditionAttested = "Attested"
	// Listed: the cloud can list instances, so one that loses its PeerPod would be found.
	ConditionListed = "Listed"
)

// PeerPodStatus is what is known of the instance.
type PeerPodStatus struct {
	// cleand is written so by earlier versions of this API and never set.
	// +optional
	Cleaned bool `json:"cleand,omitempty"`

	// phase is where the sandbox is in its life, in one word.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// conditions say it exactly, with reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// instance is what the provider said of the instance.
	// +optional
	Instance *Instance `json:"instance,omitempty"`

	// steps are the steps of the start that were done, each with its time.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Steps []Step `json:"steps,omitempty"`

	// lastError is the error of the last attempt that failed; it goes when a later one succeeds.
	// +optional
	LastError *Error `json:"lastError,omitempty"`
}

// Instance is one VM of a cloud.
type Instance struct {
	// id is the provider's.
	// +kubebuilder:validation:MaxLength=2048
	ID string `json:"id"`
	// name is the one that the cloud's console shows.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// type is the provider's name of the instance type.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Type string `json:"type,omitempty"`
	// zone is where the instance is.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Zone string `json:"zone,omitempty"`
	// addresses are those at which the node reaches the instance.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Addresses []string `json:"addresses,omitempty"`
}

// MaxSteps is how many steps a PeerPod has.
const MaxSteps = 64

// Place is where a step was taken.
//
// +kubebuilder:validation:Enum=Node;Guest
type Place string

// Places.
const (
	PlaceNode  Place = "Node"
	PlaceGuest Place = "Guest"
)

// Step is a step that was done.
type Step struct {
	// name is that of the step in the adaptor's log, or in the guest's record.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// place is where it was taken: Node or Guest; empty means Node.
	// +optional
	Place Place `json:"place,omitempty"`
	// startTime is when it began, on the node's clock; absent if that is not known.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`
	// time is when it was done.
	Time metav1.MicroTime `json:"time"`
}

// Error is a failure that somebody may have to act on.
type Error struct {
	// class is the provider contract's class of the error, such as "quota exceeded".
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Class string `json:"class,omitempty"`
	// step is the one that failed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Step string `json:"step,omitempty"`
	// message says what failed and why.
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message"`
	// hint says what to do.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Hint string `json:"hint,omitempty"`
	// time is when it failed.
	Time metav1.Time `json:"time"`
}

// PeerPodList is a list of PeerPods.
//
// +kubebuilder:object:root=true
type PeerPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PeerPod `json:"items"`
}
