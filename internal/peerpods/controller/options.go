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

// Options configure the controller. Zero durations and numbers have defaults. What has a
// tag is a setting of peerpod-ctrl.
type Options struct {
	// Namespace has the ConfigMap and the Secret.
	Namespace string `env:"PEERPODS_NAMESPACE" usage:"namespace of ConfigMap peer-pods-cm and Secret peer-pods-secret, and of the lease; needed"`
	// Cluster is this cluster's identity in owner tags.
	Cluster string `env:"CLUSTER_ID" usage:"identity of this cluster in owner tags; default: key CLUSTER_ID of the ConfigMap, else the UID of namespace kube-system"`
	// Cloud configures the providers; Owner, Listed and Observe are set here.
	Cloud cloud.Options
	Log   *slog.Logger
	// Registry has the metrics; controller-runtime's by default.
	Registry prometheus.Registerer

	// Workers reconcile in parallel: 16.
	Workers int `flag:"workers" default:"16" min:"1" usage:"PeerPods that are worked on at the same time"`
	// Sweepers delete unclaimed instances in parallel: 8.
	Sweepers int
	// Period is between two sweeps: 1 minute.
	Period time.Duration `flag:"sweep-period" default:"1m" min:"1ns" usage:"time between two comparisons of clouds and PeerPods"`
	// Grace is how old an instance must be, and for how long it must have been
	// seen unclaimed, before it is removed: 5 minutes. Within it a node that
	// had no API server claims what it made.
	Grace time.Duration `flag:"sweep-grace" default:"5m" min:"1ns" usage:"how old an instance without a PeerPod must be, and for how long it must have been seen so, before it is deleted"`
	// Settle is how long a PeerPod in deletion without a known instance is
	// kept, for an instance that is still being made: 1 minute.
	Settle time.Duration `flag:"settle-after" default:"1m" min:"1ns" usage:"how long a deleted PeerPod without an instance is kept, for one still in the making"`
	// Adopt is how old a PeerPod without an instance must be before the
	// controller adopts one for it: 2 minutes.
	Adopt time.Duration `flag:"adopt-after" default:"2m" min:"1ns" usage:"how old a PeerPod without an instance must be before the one found in the cloud is noted"`
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
