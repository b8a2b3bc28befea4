// SPDX-License-Identifier: Apache-2.0

package openshift

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

	Spec struct {
		// TrustedCA names the ConfigMap in openshift-config with further authorities.
		TrustedCA struct {
			Name string `json:"name"`
		} `json:"trustedCA,omitempty"`
	} `json:"spec"`
	Status ProxyStatus `json:"status"`
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

// ClusterOperator is where an operator says how it is.
//
// +kubebuilder:object:root=true
type ClusterOperator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has no fields; the cluster insists on an empty one.
	Spec   struct{}              `json:"spec"`
	Status ClusterOperatorStatus `json:"status,omitempty"`
}

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

	Status struct {
		// Desired is the release that the cluster is to run.
		Desired struct {
			Version string `json:"version"`
		} `json:"desired"`
	} `json:"status"`
}

// UnknownVersion is the version of an operator that nobody told its release.
const UnknownVersion = "unknown"

// SnapshotVersion is the version of an operator that was built apart from a
// release; it obeys the gates of the release that the cluster is to run.
const SnapshotVersion = "0.0.1-snapshot"

// Gates says of each feature that the cluster knows whether it is on.
type Gates map[string]bool

// Gates returns the feature gates of a release; false if the cluster has none for it
// (yet).
func (g *FeatureGate) Gates(version string) (Gates, bool) {
	for _, d := range g.Status.FeatureGates {
		if d.Version != version {
			continue
		}
		gates := Gates{}
		for _, f := range d.Enabled {
			gates[f.Name] = true
		}
		for _, f := range d.Disabled {
			gates[f.Name] = false
		}
		return gates, true
	}
	return nil, false
}

// ReadGates returns those of the release that a program is of, or, apart from a
// release, those of the one that the cluster is to run. Cached reads what is
// watched, live anything else.
func ReadGates(ctx context.Context, cached, live client.Reader, version string) (Gates, error) {
	var all FeatureGate
	if err := cached.Get(ctx, types.NamespacedName{Name: ClusterName}, &all); err != nil {
		return nil, err
	}
	if version == "" || version == UnknownVersion || version == SnapshotVersion {
		var v ClusterVersion
		if err := live.Get(ctx, types.NamespacedName{Name: ClusterVersionName}, &v); err != nil {
			return nil, fmt.Errorf("which version is it? RELEASE_VERSION names none: %w", err)
		}
		version = v.Status.Desired.Version
	}
	gates, ok := all.Gates(version)
	if !ok {
		return nil, fmt.Errorf("FeatureGate %s has none for version %q (yet)", ClusterName, version)
	}
	return gates, nil
}
