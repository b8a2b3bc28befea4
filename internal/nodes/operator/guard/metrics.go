// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	refused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outrigger_node_deletions_guarded",
		Help: "Nodes that are not Ready and that a cloud controller manager may not delete.",
	})
	open = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outrigger_node_deletions_open",
		Help: "Nodes that a cloud controller manager may delete.",
	})
)

func init() { metrics.Registry.MustRegister(refused, open) }
