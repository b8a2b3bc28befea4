// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/outrigger/outrigger/internal/nodes/ccm"
	"github.com/outrigger/outrigger/provider"
)

// meters are our own; the library adds those of its controllers.
type meters struct {
	took     *metrics.HistogramVec
	calls    *metrics.CounterVec
	failures *metrics.CounterVec
	holds    *metrics.CounterVec
}

// registerMetrics returns the process's meters: /metrics has only one registry.
var registerMetrics = sync.OnceValue(func() *meters {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	m := &meters{
		took: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "outrigger_ccm_provider_call_seconds", Help: "Duration of calls to the provider.",
			Buckets: metrics.ExponentialBuckets(0.005, 4, 9), StabilityLevel: metrics.ALPHA,
		}, []string{"provider", "operation"}),
		calls:    counter("outrigger_ccm_provider_calls_total", "Calls to the provider by result: ok, or the class of the error.", "provider", "operation", "result"),
		failures: counter("outrigger_ccm_node_initialization_failures_total", "Attempts to initialize a Node that failed, by the reason of the Node's Event.", "reason"),
		holds:    counter("outrigger_ccm_node_deletions_held_total", "Looks that did not find a Node's instance and were not proof that it is gone, by reason.", "reason"),
	}
	legacyregistry.MustRegister(m.took, m.calls, m.failures, m.holds)
	return m
})

func (m *meters) observe(name string, c ccm.Call) {
	result := "ok"
	if c.Err != nil {
		result = strings.ReplaceAll(provider.Class(c.Err).Error(), " ", "_")
	}
	m.took.WithLabelValues(name, c.Operation).Observe(c.Took.Seconds())
	m.calls.WithLabelValues(name, c.Operation, result).Inc()
}

func (m *meters) failed(reason string) { m.failures.WithLabelValues(reason).Inc() }
func (m *meters) held(reason string)   { m.holds.WithLabelValues(reason).Inc() }
