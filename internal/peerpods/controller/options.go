// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
)

// Options configure the controller. Zero durations and numbers have defaults.
type Options struct {
	// Namespace has the ConfigMap and the Secret.
	Namespace string
	// Cluster is this cluster's identity in owner tags.
	Cluster string
	// Cloud configures the providers; Owner, Listed and Observe are set here.
	Cloud cloud.Options
	Log   *slog.Logger
	// Registry has the metrics; controller-runtime's by default.
	Registry prometheus.Registerer

	// Workers reconcile in parallel: 16.
	Workers int
	// Sweepers delete unclaimed instances in parallel: 8.
	Sweepers int
	// Period is between two sweeps: 1 minute.
	Period time.Duration
	// Grace is how old an instance must be, and for how long it must have been
	// seen unclaimed, before it is removed: 5 minutes. Within it a node that
	// had no API server claims what it made.
	Grace time.Duration
	// Settle is how long a PeerPod in deletion without a known instance is
	// kept, for an instance that is still being made: 1 minute.
	Settle time.Duration
	// Adopt is how old a PeerPod without an instance must be before the
	// controller adopts one for it: 2 minutes.
	Adopt time.Duration
}

// Names of the objects with the settings.
const (
	ConfigMapName = "peer-pods-cm"
	SecretName    = "peer-pods-secret"
)

func (o *Options) complete() {
	o.Workers = cmp.Or(o.Workers, 16)
	o.Sweepers = cmp.Or(o.Sweepers, 8)
	o.Period = cmp.Or(o.Period, time.Minute)
	o.Grace = cmp.Or(o.Grace, 5*time.Minute)
	o.Settle = cmp.Or(o.Settle, time.Minute)
	o.Adopt = cmp.Or(o.Adopt, 2*time.Minute)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Registry == nil {
		o.Registry = metrics.Registry
	}
}
