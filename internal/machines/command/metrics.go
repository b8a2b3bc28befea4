// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/provider"
)

// meters are the manager's own metrics; controller-runtime adds those of
// reconciliations, queues and requests to the API server.
type meters struct {
	calls  *prometheus.HistogramVec
	errors *prometheus.CounterVec
}

func newMeters(registry prometheus.Registerer) *meters {
	return &meters{
		calls: registered(registry, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "capi_manager_provider_call_seconds", Help: "Duration of calls to the provider of Outrigger kinds.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 9),
		}, []string{"provider", "operation"})),
		errors: registered(registry, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capi_manager_provider_errors_total", Help: "Failed calls to the provider of Outrigger kinds, by class of error.",
		}, []string{"provider", "operation", "class"})),
	}
}

// registered returns the collector, or the one that another manager in this
// process has registered.
func registered[C prometheus.Collector](registry prometheus.Registerer, c C) C {
	err := registry.Register(c)
	if there := (prometheus.AlreadyRegisteredError{}); errors.As(err, &there) {
		return there.ExistingCollector.(C)
	}
	if err != nil {
		panic(err) // two metrics of one name: seen by every test
	}
	return c
}

func (m *meters) observe(c outrigger.Call) {
	m.calls.WithLabelValues(c.Provider, c.Operation).Observe(c.Took.Seconds())
	if c.Err != nil {
		class := strings.ReplaceAll(provider.Class(c.Err).Error(), " ", "_")
		m.errors.WithLabelValues(c.Provider, c.Operation, class).Inc()
	}
}
