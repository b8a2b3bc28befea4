// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"time"

	"github.com/go-logr/logr"
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

func (s *settings) managerOptions(logger *slog.Logger) manager.Options {
	grace := 8 * time.Second // less than the ten that the pod has
	several := true          // managers in one process, in tests
	o := manager.Options{
		Scheme:                        Scheme(),
		Logger:                        logr.FromSlogHandler(logger.Handler()),
		Cache:                         cache.Options{SyncPeriod: &s.syncPeriod, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                       s.metricsOptions(),
		Controller:                    controllerconfig.Controller{SkipNameValidation: &several},
		HealthProbeBindAddress:        s.healthAddress,
		PprofBindAddress:              s.profilerAddress,
		LeaderElection:                s.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       s.leaderNamespace,
		LeaseDuration:                 &s.lease,
		RenewDeadline:                 &s.renew,
		RetryPeriod:                   &s.retry,
		LeaderElectionReleaseOnCancel: true, // the process ends right after
		GracefulShutdownTimeout:       &grace,
	}
	if s.namespace != "" {
		o.Cache.DefaultNamespaces = map[string]cache.Config{s.namespace: {}}
	}
	if s.webhookPort != 0 {
		o.WebhookServer = webhook.NewServer(webhook.Options{Port: s.webhookPort, CertDir: s.webhookCertDir})
	}
	return o
}

func (s *settings) metricsOptions() metricsserver.Options {
	o := metricsserver.Options{BindAddress: s.diagnosticsAddress, SecureServing: !s.insecureDiagnostics}
	if o.SecureServing {
		o.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return o
}
