// SPDX-License-Identifier: Apache-2.0

// Package configsync prepares on OpenShift what a cloud controller manager
// mounts: the configuration of its cloud and the authorities that it trusts.
// Each has a controller. Both say how they are in the operator's
// ClusterOperator, and the operator deploys nothing before both work.
package configsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// Run works until the context ends.
func Run(ctx context.Context, api *rest.Config, o Options, log *slog.Logger) error {
	if err := o.Validate(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), openshift.AddToScheme(scheme)); err != nil {
		return err
	}
	var kinds []schema.GroupVersionKind
	for _, kind := range []string{"Infrastructure", "Network", "Proxy", "FeatureGate", "ClusterOperator"} {
		kinds = append(kinds, openshift.GroupVersion.WithKind(kind))
	}
	there, topology, err := daemon.Detect(ctx, api, scheme, kinds...)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if !there[kind] { // waiting for it would look like work
			return fmt.Errorf("the cluster at %s has no kind %s of %s: config-sync is for OpenShift; elsewhere the operator alone does what is needed, with a CloudControllerManager", api.Host, kind.Kind, openshift.GroupVersion)
		}
	}
	if err := o.Leader.Check(ctx, api); err != nil {
		return err
	}
	options := manager.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(log.Handler()), Cache: o.cacheOptions(),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: o.HealthAddress,
	}
	o.Leader.Apply(&options, topology)
	mgr, err := manager.New(api, options)
	if err != nil {
		return fmt.Errorf("reach the cluster at %s: %w", api.Host, err)
	}
	if err := errors.Join(addCloudConfig(mgr, o, log), addTrustedCA(mgr, o, log), daemon.AddChecks(mgr)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func addCloudConfig(mgr manager.Manager, o Options, log *slog.Logger) error {
	c := mgr.GetClient()
	work := &cloudConfig{
		client: c, reader: mgr.GetAPIReader(), version: o.Version,
		own: types.NamespacedName{Namespace: o.Namespace, Name: targetName}, good: types.NamespacedName{Namespace: o.Namespace, Name: goodName},
	}
	return (&controller{
		name: "cloud-config", sync: work.sync, status: status.NewSync(status.CloudConfig, c, mgr.GetAPIReader()),
		window:  &failure.Window{Threshold: o.CloudConfigDegradedAfter},
		objects: []client.Object{&openshift.Infrastructure{}, &openshift.Network{}, &openshift.FeatureGate{}},
		ours:    []types.NamespacedName{work.own, managed},
		user: func(ctx context.Context) (string, error) {
			var infra openshift.Infrastructure
			err := c.Get(ctx, cluster, &infra)
			return infra.Spec.CloudConfig.Name, client.IgnoreNotFound(err)
		},
	}).add(mgr, o.Resync, log)
}

func addTrustedCA(mgr manager.Manager, o Options, log *slog.Logger) error {
	c := mgr.GetClient()
	work := &trustedCA{
		client: c, own: types.NamespacedName{Namespace: o.Namespace, Name: caName}, config: types.NamespacedName{Namespace: o.Namespace, Name: targetName},
		systemBundle: o.SystemBundle, now: time.Now,
	}
	return (&controller{
		name: "trusted-ca-bundle", sync: work.sync, status: status.NewSync(status.TrustedCA, c, mgr.GetAPIReader()),
		window:  &failure.Window{Threshold: o.TrustedCADegradedAfter, Stale: o.TrustedCAStaleAfter},
		objects: []client.Object{&openshift.Proxy{}},
		ours:    []types.NamespacedName{work.own, work.config},
		user: func(ctx context.Context) (string, error) {
			var proxy openshift.Proxy
			err := c.Get(ctx, cluster, &proxy)
			return proxy.Spec.TrustedCA.Name, client.IgnoreNotFound(err)
		},
	}).add(mgr, o.Resync, log)
}

// cacheOptions keep what is watched to what is read.
func (o *Options) cacheOptions() cache.Options {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
				o.Namespace:      {},
				userNamespace:    {},
				managedNamespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", managedName)},
			}},
			&openshift.Infrastructure{}:  named(openshift.ClusterName),
			&openshift.Network{}:         named(openshift.ClusterName),
			&openshift.Proxy{}:           named(openshift.ClusterName),
			&openshift.FeatureGate{}:     named(openshift.ClusterName),
			&openshift.ClusterOperator{}: named(status.Name),
		},
	}
}
