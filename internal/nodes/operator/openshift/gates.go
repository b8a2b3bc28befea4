// SPDX-License-Identifier: Apache-2.0

package openshift

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
