// SPDX-License-Identifier: Apache-2.0

// Package metrics exports the adaptor's Prometheus metrics. Names begin with
// outrigger_adaptor_; labels have few values, none of them a pod's.
package metrics

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/intercept"
)

// latencies are the bounds, in seconds, of all histograms: from a local call to
// the longest that a shim waits.
var latencies = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600}

// scrapeWait bounds what a scrape waits for the relay.
const scrapeWait = 2 * time.Second

// Metrics are those of one adaptor, in a registry of their own.
type Metrics struct {
	registry *prometheus.Registry
	provider string

	steps, starts, calls, guest *prometheus.HistogramVec
	failures                    *prometheus.CounterVec
}

// New makes the metrics of an adaptor with that provider.
func New(providerName string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		provider: providerName,
		steps:    histogram("step_duration_seconds", "How long the steps of sandboxes took.", "provider", "step", "result"),
		starts:   histogram("start_duration_seconds", "How long StartVM took as a whole.", "provider", "result"),
		calls:    histogram("provider_call_duration_seconds", "How long calls to the provider took.", "provider", "call", "class"),
		guest:    histogram("guest_step_duration_seconds", "How long the steps of starts took that guests and the relay report, layers and containers each by itself.", "provider", "step"),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_adaptor_errors_total", Help: "Steps and removals that failed, by the class of the error.",
		}, []string{"provider", "step", "class"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outrigger_adaptor_build_info", Help: "1, labelled with what runs.",
		ConstLabels: prometheus.Labels{"version": version.Version, "provider": providerName},
	})
	build.Set(1)
	m.registry.MustRegister(m.steps, m.starts, m.calls, m.guest, m.failures, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// From zero on: Prometheus' rate does not count the first of a series that begins with one.
	for _, result := range []string{"ok", "error"} {
		m.starts.WithLabelValues(providerName, result)
	}
	for _, class := range provider.Classes() {
		m.failures.WithLabelValues(providerName, "create-instance", class.Error())
	}
	return m
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "outrigger_adaptor_" + name, Help: help, Buckets: latencies}, labels)
}

// Handler serves scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Timeout: 2 * scrapeWait})
}

// Observe implements [adaptor.Observer].
func (m *Metrics) Observe(change adaptor.Change) {
	switch change.Kind {
	case adaptor.ChangeDone:
		m.steps.WithLabelValues(m.provider, change.Step, "ok").Observe(change.Took.Seconds())
	case adaptor.ChangeFailed:
		class := classOf(change.Err)
		m.steps.WithLabelValues(m.provider, change.Step, "error").Observe(change.Took.Seconds())
		m.failures.WithLabelValues(m.provider, change.Step, class).Inc()
	case adaptor.ChangeStarted:
		m.starts.WithLabelValues(m.provider, result(change.Err)).Observe(change.Took.Seconds())
	case adaptor.ChangeTimeline:
		for _, step := range change.Timeline.Steps {
			if slices.Contains(timeline.Names, step.Name) {
				m.guest.WithLabelValues(m.provider, step.Name).Observe(step.Took().Seconds())
			}
		}
	case adaptor.ChangeStuck:
		m.failures.WithLabelValues(m.provider, "remove", classOf(change.Err)).Inc()
	}
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// classOf returns the class of a provider's error as a label value, also for
// success.
func classOf(err error) string {
	var step *adaptor.StepError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &step) && step.Interrupted():
		return "interrupted"
	}
	return provider.Class(err).Error()
}

// Service is the part of the adaptor's service that each scrape reads.
type Service interface {
	States() map[adaptor.State]int
	Carried(ctx context.Context) (adaptor.Carried, error)
}

// Watch adds the metrics of service.
func (m *Metrics) Watch(service Service) {
	m.registry.MustRegister(&serviceCollector{service})
}

// Cluster is the part of the adaptor's cluster client that each scrape reads.
type Cluster interface {
	Away() bool
	Backlog() int
	DroppedEvents() int64
}

// WatchCluster adds the metrics of the cluster client.
func (m *Metrics) WatchCluster(cluster Cluster) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outrigger_adaptor_apiserver_away", Help: "1 while the API server does not answer.",
		}, func() float64 {
			if cluster.Away() {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outrigger_adaptor_peerpods_behind", Help: "PeerPods of this node that are still to be written.",
		}, func() float64 { return float64(cluster.Backlog()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "outrigger_adaptor_events_dropped_total", Help: "Events that were never written.",
		}, func() float64 { return float64(cluster.DroppedEvents()) }),
	)
}

var (
	sandboxesDesc = prometheus.NewDesc("outrigger_adaptor_sandboxes", "Sandboxes of this node by state.", []string{"state"}, nil)
	relayUpDesc   = prometheus.NewDesc("outrigger_adaptor_relay_up", "1 when the agent relay answers.", nil, nil)
	servedDesc    = prometheus.NewDesc("outrigger_adaptor_relay_sandboxes", "Sandboxes that the agent relay serves.", nil, nil)
	clientsDesc   = prometheus.NewDesc("outrigger_adaptor_relay_clients", "Connections of shims to the agent relay.", nil, nil)
	callsDesc     = prometheus.NewDesc("outrigger_adaptor_relay_calls", "Agent calls that the relay has carried for the sandboxes it serves now.", nil, nil)
)

// states are reported also when no sandbox is in them.
var states = []adaptor.State{
	adaptor.StateCreating, adaptor.StateCreated, adaptor.StateStarting, adaptor.StateReady, adaptor.StateWaiting, adaptor.StateStopping,
}

// serviceCollector asks the service when it is scraped.
type serviceCollector struct{ service Service }

// Describe implements prometheus.Collector.
func (c *serviceCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{sandboxesDesc, relayUpDesc, servedDesc, clientsDesc, callsDesc} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *serviceCollector) Collect(to chan<- prometheus.Metric) {
	counts := c.service.States()
	gauge := func(desc *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	for _, state := range states {
		gauge(sandboxesDesc, int64(counts[state]), string(state))
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWait)
	defer cancel()
	carried, err := c.service.Carried(ctx)
	if err != nil {
		gauge(relayUpDesc, 0)
		return
	}
	gauge(relayUpDesc, 1)
	gauge(servedDesc, carried.Sandboxes)
	gauge(clientsDesc, carried.Clients)
	gauge(callsDesc, carried.Calls)
}

// Provider returns p with its calls measured. It has the capabilities that p has;
// ask for them with [provider.As].
func (m *Metrics) Provider(p provider.Provider) provider.Provider {
	return intercept.Provider(p, func(_ context.Context, call intercept.Call, next func() error) error {
		began := time.Now()
		err := next()
		m.calls.WithLabelValues(m.provider, call.Method, classOf(err)).Observe(time.Since(began).Seconds())
		return err
	})
}
