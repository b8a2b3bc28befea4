// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// uninitialized is the only metric: a Node that is initialized, gone or still in
// its time has no value.
var uninitialized = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "outrigger_node_uninitialized_seconds",
	Help: "How long a Node has waited for its cloud controller manager, when last looked at, by cause.",
}, []string{"node", "cause"})

func init() { metrics.Registry.MustRegister(uninitialized) }

func remember(node string, cause Cause, waited time.Duration) {
	forget(node)
	uninitialized.WithLabelValues(node, string(cause)).Set(waited.Seconds())
}

func forget(node string) { uninitialized.DeletePartialMatch(prometheus.Labels{"node": node}) }
