// SPDX-License-Identifier: Apache-2.0

package openshift

// SnapshotVersion is the version of an operator that was built apart from a
// release; it obeys the gates of the release that the cluster is to run.
const SnapshotVersion = "0.0.1-snapshot"

// Gates says of each feature that the cluster knows whether it is on.
type Gates map[string]bool

// Gates are those of a release; false when the cluster has none for it (yet).
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
