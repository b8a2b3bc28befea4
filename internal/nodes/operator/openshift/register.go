// SPDX-License-Identifier: Apache-2.0

package openshift

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "config.openshift.io", Version: "v1"}

// KubeControllerManagerKind is watched as metadata only; the object's name is
// [ClusterName].
var KubeControllerManagerKind = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "KubeControllerManager"}

// Names of the only object of a kind.
const (
	// ClusterName is that of Infrastructure, Network, Proxy, APIServer and
	// FeatureGate.
	ClusterName = "cluster"
	// ClusterVersionName is that of ClusterVersion.
	ClusterVersionName = "version"
)

// AddToScheme registers the kinds.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Infrastructure{}, &InfrastructureList{},
		&Network{}, &NetworkList{},
		&Proxy{}, &ProxyList{},
		&APIServer{}, &APIServerList{},
		&FeatureGate{}, &FeatureGateList{},
		&ClusterOperator{}, &ClusterOperatorList{},
		&ClusterVersion{}, &ClusterVersionList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
