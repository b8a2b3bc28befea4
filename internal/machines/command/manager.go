// SPDX-License-Identifier: Apache-2.0

package command

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

const leaseName = "capi-manager-leader-election.outrigger.dev"

// Scheme has the types that the manager reads, writes and converts.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme, infrav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a type registered twice: seen by every test
		}
	}
	return scheme
}

func (s *settings) managerOptions() manager.Options {
	grace := 8 * time.Second // less than the ten that the pod has
	several := true          // managers in one process, in tests
	o := manager.Options{
		Scheme:                  Scheme(),
		Cache:                   cache.Options{SyncPeriod: &s.SyncPeriod, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                 s.metricsOptions(),
		Controller:              controllerconfig.Controller{SkipNameValidation: &several},
		HealthProbeBindAddress:  s.HealthAddress,
		PprofBindAddress:        s.ProfilerAddress,
		LeaderElection:          s.LeaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: s.LeaderNamespace,
		LeaseDuration:           &s.Lease,
		RenewDeadline:           &s.Renew,
		RetryPeriod:             &s.Retry,
		GracefulShutdownTimeout: &grace,
	}
	if s.Namespace != "" {
		o.Cache.DefaultNamespaces = map[string]cache.Config{s.Namespace: {}}
	}
	if s.WebhookPort != 0 {
		o.WebhookServer = webhook.NewServer(webhook.Options{Port: s.WebhookPort, CertDir: s.WebhookCertDir})
	}
	return o
}

func (s *settings) metricsOptions() metricsserver.Options {
	o := metricsserver.Options{BindAddress: s.DiagnosticsAddress, SecureServing: !s.InsecureDiagnostics}
	if o.SecureServing {
		o.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return o
}
