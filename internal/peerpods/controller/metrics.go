// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
)

// Why an instance was deleted, as label values.
const (
	causePeerPod   = "peerpod"
	causeUnclaimed = "unclaimed"
	causeDouble    = "double"
)

// meters are the controller's own metrics; controller-runtime adds those of its
// queue.
type meters struct {
	calls    *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	deleted  *prometheus.CounterVec
	peerpods *prometheus.GaugeVec
	listed   *prometheus.GaugeVec
	swept    *prometheus.GaugeVec
	pools    *prometheus.GaugeVec
	settings prometheus.Gauge
}

func newMeters(registry prometheus.Registerer) *meters {
	m := &meters{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "peerpod_ctrl_provider_call_seconds", Help: "Duration of calls to providers.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 8),
		}, []string{"provider", "operation"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "peerpod_ctrl_provider_errors_total", Help: "Failed calls to providers by class of error.",
		}, []string{"provider", "operation", "reason"}),
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "peerpod_ctrl_instances_deleted_total", Help: "Instances removed, by why: their PeerPod was deleted, none claimed them, or they were a second one.",
		}, []string{"provider", "cause"}),
		peerpods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "peerpod_ctrl_peerpods", Help: "PeerPods by provider and phase, as of the last sweep.",
		}, []string{"provider", "phase"}),
		listed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "peerpod_ctrl_instances", Help: "Instances of this cluster that providers listed, by whether a PeerPod claims them, as of the last sweep.",
		}, []string{"provider", "claimed"}),
		swept: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "peerpod_ctrl_last_sweep_timestamp_seconds", Help: "When the last sweep of the provider succeeded, in Unix time.",
		}, []string{"provider"}),
		pools: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "peerpod_ctrl_pool_vms", Help: "VMs of PodVMPools, by whether they are starting, ready for a pod, or claimed by one; wanted is minReady.",
		}, []string{"pool", "state"}),
		settings: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "peerpod_ctrl_settings_valid", Help: "1 when every provider in use works with the newest settings.",
		}),
	}
	registry.MustRegister(m.calls, m.errors, m.deleted, m.peerpods, m.listed, m.swept, m.pools, m.settings)
	return m
}

// observe records a call to a provider.
func (m *meters) observe(c cloud.Call) {
	m.calls.WithLabelValues(c.Provider, c.Operation).Observe(c.Took.Seconds())
	if c.Err != nil {
		m.errors.WithLabelValues(c.Provider, c.Operation, claims.Reason(c.Err)).Inc()
	}
}

func (m *meters) sweptAt(name string, at time.Time, claimed, unclaimed int) {
	m.swept.WithLabelValues(name).Set(float64(at.Unix()))
	m.listed.WithLabelValues(name, "true").Set(float64(claimed))
	m.listed.WithLabelValues(name, "false").Set(float64(unclaimed))
	for _, cause := range []string{causePeerPod, causeUnclaimed, causeDouble} {
		m.deleted.WithLabelValues(name, cause) // from zero on, so that increase() has the first
	}
}

// countPool updates the number of a pool's VMs.
func (m *meters) countPool(pool *v1alpha1.PodVMPool) {
	for state, n := range map[string]int32{
		"starting": pool.Status.Starting, "ready": pool.Status.Ready, "claimed": pool.Status.Claimed, "wanted": pool.Spec.MinReady,
	} {
		m.pools.WithLabelValues(pool.Name, state).Set(float64(n))
	}
}

// count updates the number of PeerPods.
func (m *meters) count(list []v1alpha1.PeerPod) {
	m.peerpods.Reset()
	for i := range list {
		m.peerpods.WithLabelValues(list[i].Spec.CloudProvider, string(claims.PhaseOf(&list[i]))).Inc()
	}
}
