// SPDX-License-Identifier: Apache-2.0

// Package openshift has what the operator knows of OpenShift beside the types of its API
// group config.openshift.io/v1: names, which platforms wait for a cloud controller
// manager, and the feature gates of a release.
package openshift

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

// awaiting are the platforms whose kubelets start with --cloud-provider=external.
var awaiting = map[configv1.PlatformType]bool{
	configv1.AlibabaCloudPlatformType: true, configv1.AWSPlatformType: true, configv1.AzurePlatformType: true, configv1.GCPPlatformType: true,
	configv1.IBMCloudPlatformType: true, configv1.KubevirtPlatformType: true, configv1.NutanixPlatformType: true, configv1.OpenStackPlatformType: true,
	configv1.PowerVSPlatformType: true, configv1.VSpherePlatformType: true,
}

// AwaitsManager reports whether the Nodes of a platform wait for a cloud controller
// manager, whoever deploys it.
func AwaitsManager(s *configv1.PlatformStatus) bool {
	if s.Type == configv1.ExternalPlatformType {
		return s.External != nil && s.External.CloudControllerManager.State == configv1.CloudControllerManagerExternal
	}
	return awaiting[s.Type]
}

// UnknownVersion is the version of an operator that nobody told its release.
const UnknownVersion = "unknown"

// SnapshotVersion is the version of an operator that was built apart from a
// release; it obeys the gates of the release that the cluster is to run.
const SnapshotVersion = "0.0.1-snapshot"

// Gates says of each feature that the cluster knows whether it is on.
type Gates map[string]bool

// gatesOf returns the feature gates of a release; false if the cluster has none for it
// (yet).
func gatesOf(g *configv1.FeatureGate, version string) (Gates, bool) {
	for _, d := range g.Status.FeatureGates {
		if d.Version != version {
			continue
		}
		gates := Gates{}
		for _, f := range d.Enabled {
			gates[string(f.Name)] = true
		}
		for _, f := range d.Disabled {
			gates[string(f.Name)] = false
		}
		return gates, true
	}
	return nil, false
}

// ReadGates returns those of the release that a program is of, or, apart from a
// release, those of the one that the cluster is to run. Cached reads what is
// watched, live anything else.
func ReadGates(ctx context.Context, cached, live client.Reader, version string) (Gates, error) {
	var all configv1.FeatureGate
	if err := cached.Get(ctx, types.NamespacedName{Name: ClusterName}, &all); err != nil {
		return nil, err
	}
	if version == "" || version == UnknownVersion || version == SnapshotVersion {
		var v configv1.ClusterVersion
		if err := live.Get(ctx, types.NamespacedName{Name: ClusterVersionName}, &v); err != nil {
			return nil, fmt.Errorf("which version is it? RELEASE_VERSION names none: %w", err)
		}
		version = v.Status.Desired.Version
	}
	gates, ok := gatesOf(&all, version)
	if !ok {
		return nil, fmt.Errorf("FeatureGate %s has none for version %q (yet)", ClusterName, version)
	}
	return gates, nil
}
