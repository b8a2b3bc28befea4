// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var filterChecks = []Check{
	{"watch-filter-cluster", "An InfraCluster that has not the label of --watch-filter is left alone.", []need{needsFilter}, func(r *run) {
		for what, change := range map[string]change{"without the label": unfiltered, "with another manager's label": ofAnother} {
			fx := r.newFixture()
			fx.wantUntouched(what+" "+clusterv1.WatchLabel, fx.addCluster(nil, fx.ownedByCluster, change))
		}
	}},
	{"watch-filter-machine", "An InfraMachine that has not the label of --watch-filter is left alone.", []need{needsFilter}, func(r *run) {
		fx := r.provisionedCluster()
		for what, change := range map[string]change{"without the label": unfiltered, "with another manager's label": ofAnother} {
			fx.wantUntouched(what+" "+clusterv1.WatchLabel, fx.addMachine("m-"+unique(), fx.ownedByMachine, change))
		}
	}},
}

// filtered gives an object the label of the manager under test.
func (s *Subject) filtered(o client.Object) {
	if s.WatchFilter != "" {
		labelled(clusterv1.WatchLabel, s.WatchFilter)(o)
	}
}

// ofAnother gives an object to another manager.
func ofAnother(o client.Object) {
	unfiltered(o)
	labelled(clusterv1.WatchLabel, "another-"+unique())(o)
}

func unfiltered(o client.Object) {
	labels := o.GetLabels()
	delete(labels, clusterv1.WatchLabel)
	o.SetLabels(labels)
}
