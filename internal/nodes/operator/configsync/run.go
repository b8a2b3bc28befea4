// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
	"github.com/outrigger/outrigger/internal/nodes/operator/trustbundle"
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
	topology, err := controlPlane(ctx, api, scheme)
	if err != nil {
		return err
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

// controlPlane returns the control plane's topology, and says clearly when this
// is not a cluster of OpenShift: waiting for its kinds would look like work.
func controlPlane(ctx context.Context, api *rest.Config, scheme *runtime.Scheme) (openshift.TopologyMode, error) {
	c, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return "", fmt.Errorf("reach the cluster at %s: %w", api.Host, err)
	}
	for _, kind := range []string{"Infrastructure", "Network", "Proxy", "FeatureGate", "ClusterOperator"} {
		_, err := c.RESTMapper().RESTMapping(openshift.GroupVersion.WithKind(kind).GroupKind(), openshift.GroupVersion.Version)
		if apimeta.IsNoMatchError(err) {
			return "", fmt.Errorf("the cluster at %s has no kind %s of %s: config-sync is for OpenShift; elsewhere the operator alone does what is needed, with a CloudControllerManager", api.Host, kind, openshift.GroupVersion)
		}
		if err != nil {
			return "", fmt.Errorf("reach the cluster at %s: %w", api.Host, err)
		}
	}
	var infra openshift.Infrastructure
	if err := c.Get(ctx, cluster, &infra); err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("read Infrastructure %s: %w", cluster.Name, err)
	}
	return infra.Status.ControlPlaneTopology, nil
}

func addCloudConfig(mgr manager.Manager, o Options, log *slog.Logger) error {
	own := types.NamespacedName{Namespace: o.Namespace, Name: targetName}
	managed := types.NamespacedName{Namespace: managedNamespace, Name: managedName}
	c := mgr.GetClient()
	work := &cloudConfig{
		client: c, reader: mgr.GetAPIReader(), version: o.Version,
		target: target{client: c, name: own}, managed: target{client: c, name: managed},
		good: lastGood{client: c, name: types.NamespacedName{Namespace: o.Namespace, Name: goodName}},
	}
	window := &failure.Window{Threshold: o.CloudConfigDegradedAfter}
	user := func(ctx context.Context) (string, error) {
		var infra openshift.Infrastructure
		err := c.Get(ctx, cluster, &infra)
		return infra.Spec.CloudConfig.Name, client.IgnoreNotFound(err)
	}
	w := watched{
		sync: status.CloudConfig, ours: []types.NamespacedName{own, managed}, user: user,
		objects: []client.Object{&openshift.Infrastructure{}, &openshift.Network{}, &openshift.FeatureGate{}},
	}
	return w.add(mgr, "cloud-config", o.Resync, window.Retry(), &controller{
		sync: work.sync, status: status.NewSync(status.CloudConfig, c, mgr.GetAPIReader()), window: window, now: time.Now, log: log.With("controller", "cloud-config"),
	})
}

func addTrustedCA(mgr manager.Manager, o Options, log *slog.Logger) error {
	own := types.NamespacedName{Namespace: o.Namespace, Name: caName}
	config := types.NamespacedName{Namespace: o.Namespace, Name: targetName}
	c := mgr.GetClient()
	work := &trustedCA{
		client: c, config: config, target: target{client: c, name: own, annotations: caAnnotations}, system: func() string { return trustbundle.SystemFile(o.SystemBundle) }, now: time.Now,
	}
	window := &failure.Window{Threshold: o.TrustedCADegradedAfter, Stale: o.TrustedCAStaleAfter}
	user := func(ctx context.Context) (string, error) {
		var proxy openshift.Proxy
		err := c.Get(ctx, cluster, &proxy)
		return proxy.Spec.TrustedCA.Name, client.IgnoreNotFound(err)
	}
	w := watched{sync: status.TrustedCA, ours: []types.NamespacedName{own, config}, user: user, objects: []client.Object{&openshift.Proxy{}}}
	return w.add(mgr, "trusted-ca-bundle", o.Resync, window.Retry(), &controller{
		sync: work.sync, status: status.NewSync(status.TrustedCA, c, mgr.GetAPIReader()), window: window, now: time.Now, log: log.With("controller", "trusted-ca-bundle"),
	})
}
