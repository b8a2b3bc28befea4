// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of cloud controller managers on plain Kubernetes:
// one object says which one runs, and how it is.
//
// +kubebuilder:object:generate=true
// +groupName=ccm.outrigger.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Conditions of a CloudControllerManager.
const (
	// AvailableCondition: it has been rolled out, and is as wanted.
	AvailableCondition = "Available"
	// ProgressingCondition: something is being rolled out.
	ProgressingCondition = "Progressing"
	// DegradedCondition: it cannot be made as wanted, for longer than failures last
	// that go by themselves.
	DegradedCondition = "Degraded"
	// WarningCondition: somebody has to see to something, though it may still work.
	WarningCondition = "Warning"
)

// CloudControllerManager says which cloud controller manager runs in the
// cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cloudcontrollermanagers,singular=cloudcontrollermanager,shortName=ccm,scope=Cluster
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Kubernetes",type=string,priority=1,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Warning")].message`
type CloudControllerManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CloudControllerManagerSpec   `json:"spec"`
	Status CloudControllerManagerStatus `json:"status,omitempty"`
}

// CloudControllerManagerSpec is what is wanted.
//
// +kubebuilder:validation:XValidation:rule="self.provider == oldSelf.provider",message="provider cannot change: make another CloudControllerManager and delete this one"
// +kubebuilder:validation:XValidation:rule="has(self.images) || has(self.versions)",message="images or versions: one of them says what runs"
type CloudControllerManagerSpec struct {
	// provider is the name of a bundle: one that is built in, such as libvirt, or that of the folder or ConfigMap that has it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// bundle is where a bundle is that is not built in.
	// +optional
	Bundle *BundleReference `json:"bundle,omitempty"`

	// images are the images by their key in the bundle, such as cloudControllerManagerAWS. They win over those of versions.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Images map[string]string `json:"images,omitempty"`

	// versions says which images run beside which version of Kubernetes. The first that fits is taken, after all API servers have that version.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Versions []VersionRule `json:"versions,omitempty"`

	// cloudConfig is the ConfigMap, in the operator's namespace, with the configuration of the cloud provider. It is looked at before it is rolled out.
	// +optional
	CloudConfig *ConfigMapKey `json:"cloudConfig,omitempty"`

	// trustedCA is the ConfigMap, in the operator's namespace, with further authorities to trust in its key ca-bundle.crt.
	// +optional
	TrustedCA *LocalReference `json:"trustedCA,omitempty"`

	// identity is what the manager has in place of a Secret, where its cloud trusts the cluster's ServiceAccounts.
	// +optional
	Identity *WorkloadIdentity `json:"identity,omitempty"`

	// topology says whether anything runs twice.
	// +optional
	// +kubebuilder:default=HighlyAvailable
	Topology Topology `json:"topology,omitempty"`

	// proxy is how what is outside is reached.
	// +optional
	Proxy *Proxy `json:"proxy,omitempty"`

	// featureGates are those that the manager gets, by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	FeatureGates map[string]bool `json:"featureGates,omitempty"`

	// infrastructureName is the name that the cluster's machines carry in the cloud, where the bundle wants one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	InfrastructureName string `json:"infrastructureName,omitempty"`

	// providerIDPrefixes are those of the providerIDs of this cloud, such as aws://. Without them it is PROVIDER://.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	ProviderIDPrefixes []string `json:"providerIDPrefixes,omitempty"`

	// nodeDeletions says which deletions of Nodes the manager may do.
	// +optional
	NodeDeletions *NodeDeletions `json:"nodeDeletions,omitempty"`
}

// BundleReference is where a bundle is.
type BundleReference struct {
	// configMap is the name of a ConfigMap in the operator's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap"`
}

// ConfigMapKey is a key of a ConfigMap.
type ConfigMapKey struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +optional
	// +kubebuilder:default=cloud.conf
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// LocalReference is an object of a known kind and namespace.
type LocalReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// WorkloadIdentity is how a manager says to its cloud who it is.
//
// +kubebuilder:validation:XValidation:rule="!has(self.expirationSeconds) || has(self.audience)",message="expirationSeconds: without audience there is no token"
type WorkloadIdentity struct {
	// annotations are of the manager's ServiceAccounts, such as eks.amazonaws.com/role-arn.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Annotations map[string]string `json:"annotations,omitempty"`
	// podLabels are of the manager's pods, such as azure.workload.identity/use.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	PodLabels map[string]string `json:"podLabels,omitempty"`
	// audience is for whom the pods get a token of their ServiceAccount, in the file /var/run/secrets/cloud-identity/token, such as sts.amazonaws.com. Without it they get none: a webhook of the cloud may give them one.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Audience string `json:"audience,omitempty"`
	// expirationSeconds is how long a token is good; an hour if it is not set.
	// +optional
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=4294967296
	ExpirationSeconds *int64 `json:"expirationSeconds,omitempty"`
	// environment are variables of the manager, such as AWS_ROLE_ARN.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Environment map[string]string `json:"environment,omitempty"`
}

// Topology says whether anything runs twice.
//
// +kubebuilder:validation:Enum=HighlyAvailable;SingleReplica
type Topology string

// Topologies.
const (
	HighlyAvailable Topology = "HighlyAvailable"
	SingleReplica   Topology = "SingleReplica"
)

// Proxy is how what is outside is reached. What is empty is not set.
type Proxy struct {
	// +optional
	HTTPProxy string `json:"httpProxy,omitempty"`
	// +optional
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	// +optional
	NoProxy string `json:"noProxy,omitempty"`
}

// VersionRule says what runs beside some versions of Kubernetes.
type VersionRule struct {
	// kubernetes is a minor version, such as 1.36, or a range of them: 1.34-1.36.
	// +kubebuilder:validation:Pattern=`^1\.[0-9]{1,3}(-1\.[0-9]{1,3})?$`
	Kubernetes string `json:"kubernetes"`
	// version is that of the manager, such as v1.36.2. If it counts as Kubernetes does it must not be newer, and at most one minor version older.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
	// images are the images by their key in the bundle.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Images map[string]string `json:"images"`
}

// GuardMode says how deletions of Nodes are looked at.
//
// +kubebuilder:validation:Enum=Guarded;Unguarded
type GuardMode string

// Modes.
const (
	Guarded   GuardMode = "Guarded"
	Unguarded GuardMode = "Unguarded"
)

// NodeDeletions says which deletions of Nodes the manager may do.
type NodeDeletions struct {
	// mode: Guarded lets pass only what the limits below let pass.
	// +optional
	// +kubebuilder:default=Guarded
	Mode GuardMode `json:"mode,omitempty"`
	// max is how many Nodes may be deleted in each window. 0 is none.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	Max *int32 `json:"max,omitempty"`
	// window is such as 10m.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms|us|ns))+$') && duration(self) > duration('0s')",message="want a duration of more than 0, such as 10m"
	Window *metav1.Duration `json:"window,omitempty"`
	// notReadyFor is how long a Node must not have been Ready before it may be deleted.
	// +optional
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms|us|ns))+$') && duration(self) >= duration('0s')",message="want a duration, such as 10m"
	NotReadyFor *metav1.Duration `json:"notReadyFor,omitempty"`
	// minAge is how old a Node must be before it may be deleted.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms|us|ns))+$') && duration(self) >= duration('0s')",message="want a duration, such as 10m"
	MinAge *metav1.Duration `json:"minAge,omitempty"`
}

// CloudControllerManagerStatus is what is there. It can be made again from
// nothing except for lastGood.
type CloudControllerManagerStatus struct {
	// observedGeneration is the generation that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// version is that of the manager which was rolled out.
	// +optional
	Version string `json:"version,omitempty"`
	// kubernetesVersion is the lowest of the API servers.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// lastGood is what was rolled out last, and to which a rollout that stalls goes back.
	// +optional
	LastGood *Rollout `json:"lastGood,omitempty"`
	// stalled is what was given up. It is tried again when the spec, a ConfigMap or Secret that it reads, or the version of Kubernetes changes.
	// +optional
	Stalled *Rollout `json:"stalled,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// relatedObjects are all that was applied.
	// +optional
	// +listType=atomic
	RelatedObjects []ObjectReference `json:"relatedObjects,omitempty"`
}

// Rollout is what was rolled out, or was to be.
type Rollout struct {
	// generation is the one of the spec.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// +optional
	Version string `json:"version,omitempty"`
	// +optional
	Images map[string]string `json:"images,omitempty"`
	// sum is that of all that belongs to it: manifests, configuration and Secrets.
	// +optional
	Sum string `json:"sum,omitempty"`
}

// ObjectReference is an object that was applied.
type ObjectReference struct {
	// +optional
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// CloudControllerManagerList is a list of them.
//
// +kubebuilder:object:root=true
type CloudControllerManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CloudControllerManager `json:"items"`
}

// GroupVersion is that of CloudControllerManagers.
var GroupVersion = schema.GroupVersion{Group: "ccm.outrigger.dev", Version: "v1alpha1"}

// Resource is the plural as it stands in URLs and RBAC rules.
const Resource = "cloudcontrollermanagers"

// AddToScheme registers the types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &CloudControllerManager{}, &CloudControllerManagerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
