// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outrigger/outrigger/internal/capi/outrigger"
	"github.com/outrigger/outrigger/provider"
)

// meters are the manager's own; controller-runtime adds reconciliations, queues
// and requests to the API server.
type meters struct {
	calls  *prometheus.HistogramVec
	errors *prometheus.CounterVec
}

func newMeters(registry prometheus.Registerer) *meters {
	m := &meters{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "capi_manager_provider_call_seconds", Help: "Duration of calls to the provider of Outrigger kinds.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 9),
		}, []string{"provider", "operation"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capi_manager_provider_errors_total", Help: "Failed calls to the provider of Outrigger kinds, by class of error.",
		}, []string{"provider", "operation", "class"}),
	}
	registry.MustRegister(m.calls, m.errors)
	return m
}

func (m *meters) observe(c outrigger.Call) {
	m.calls.WithLabelValues(c.Provider, c.Operation).Observe(c.Took.Seconds())
	if c.Err != nil {
		class := strings.ReplaceAll(provider.Class(c.Err).Error(), " ", "_")
		m.errors.WithLabelValues(c.Provider, c.Operation, class).Inc()
	}
}
