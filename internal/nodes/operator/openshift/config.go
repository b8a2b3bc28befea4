// SPDX-License-Identifier: Apache-2.0

package openshift

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Network says which addresses the cluster uses.
//
// +kubebuilder:object:root=true
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkSpec `json:"spec"`
}

// NetworkSpec has the ranges of Services' addresses, the primary family first.
type NetworkSpec struct {
	ServiceNetwork []string `json:"serviceNetwork"`
}

// Proxy says how programs of the cluster reach what is outside.
//
// +kubebuilder:object:root=true
type Proxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ProxySpec   `json:"spec"`
	Status ProxyStatus `json:"status"`
}

// ProxySpec names the ConfigMap in openshift-config with further authorities.
type ProxySpec struct {
	TrustedCA ConfigMapNameReference `json:"trustedCA,omitempty"`
}

// ConfigMapNameReference is a ConfigMap of a known namespace.
type ConfigMapNameReference struct {
	Name string `json:"name"`
}

// ProxyStatus is what programs are to use; what is empty is not set.
type ProxyStatus struct {
	HTTPProxy  string `json:"httpProxy,omitempty"`
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	NoProxy    string `json:"noProxy,omitempty"`
}

// APIServer says which versions and ciphers of TLS the cluster serves.
//
// +kubebuilder:object:root=true
type APIServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec APIServerSpec `json:"spec"`
}

// APIServerSpec is what administrators may change.
type APIServerSpec struct {
	TLSSecurityProfile *TLSSecurityProfile `json:"tlsSecurityProfile,omitempty"`
	// TLSAdherence says who obeys the profile besides the API server. Clusters
	// without the feature have none.
	TLSAdherence TLSAdherence `json:"tlsAdherence,omitempty"`
}

// TLSAdherence says who obeys the cluster's TLS profile.
type TLSAdherence string

// Adherence: only these two mean that we keep to the default profile.
const (
	TLSAdherenceNoOpinion TLSAdherence = ""
	TLSAdherenceLegacy    TLSAdherence = "LegacyAdheringComponentsOnly"
	TLSAdherenceStrict    TLSAdherence = "StrictAllComponents"
)

// TLSProfileType names a profile.
type TLSProfileType string

// The profiles.
const (
	TLSProfileOld          TLSProfileType = "Old"
	TLSProfileIntermediate TLSProfileType = "Intermediate"
	TLSProfileModern       TLSProfileType = "Modern"
	TLSProfileCustom       TLSProfileType = "Custom"
)

// TLSSecurityProfile is a profile's name, or with [TLSProfileCustom] its
// content.
type TLSSecurityProfile struct {
	Type   TLSProfileType    `json:"type"`
	Custom *CustomTLSProfile `json:"custom,omitempty"`
}

// CustomTLSProfile has ciphers as OpenSSL or IANA names them, and as lowest
// version one of VersionTLS10 to VersionTLS13.
type CustomTLSProfile struct {
	Ciphers       []string `json:"ciphers"`
	MinTLSVersion string   `json:"minTLSVersion"`
}

// FeatureGate says which features are on.
//
// +kubebuilder:object:root=true
type FeatureGate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status FeatureGateStatus `json:"status"`
}

// FeatureGateStatus has an entry for each release that runs.
type FeatureGateStatus struct {
	FeatureGates []FeatureGateDetails `json:"featureGates"`
}

// FeatureGateDetails are those of a release. A feature that is in neither list
// is unknown to it.
type FeatureGateDetails struct {
	Version  string                  `json:"version"`
	Enabled  []FeatureGateAttributes `json:"enabled"`
	Disabled []FeatureGateAttributes `json:"disabled"`
}

// FeatureGateAttributes is a feature.
type FeatureGateAttributes struct {
	Name string `json:"name"`
}
