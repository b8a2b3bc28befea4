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
	"path/filepath"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
	"github.com/outrigger/outrigger/internal/version"
)

// Run works until the context ends, with valid options.
func Run(ctx context.Context, api *rest.Config, o Options, log *slog.Logger) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), configv1.Install(scheme)); err != nil {
		return err
	}
	var kinds []schema.GroupVersionKind
	for _, kind := range []string{"Infrastructure", "Network", "Proxy", "FeatureGate", "ClusterOperator"} {
		kinds = append(kinds, configv1.GroupVersion.WithKind(kind))
	}
	there, topology, err := daemon.Detect(ctx, api, scheme, kinds...)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if !there[kind] { // waiting for it would look like work
			return fmt.Errorf("the cluster at %s has no kind %s of %s: config-sync is for OpenShift; elsewhere the operator alone does what is needed, with a CloudControllerManager", api.Host, kind.Kind, configv1.GroupVersion)
		}
	}
	mgr, err := daemon.NewManager(ctx, api, log, manager.Options{
		Scheme: scheme, Cache: o.cacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: o.HealthAddress,
	}, o.Leader, topology)
	if err != nil {
		return err
	}
	if err := errors.Join(addCloudConfig(mgr, o, log), addTrustedCA(mgr, o, log)); err != nil {
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
		objects: []client.Object{&configv1.Infrastructure{}, &configv1.Network{}, &configv1.FeatureGate{}},
		ours:    []types.NamespacedName{work.own, managed},
		user: func(ctx context.Context) (string, error) {
			var infra configv1.Infrastructure
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
		objects: []client.Object{&configv1.Proxy{}},
		ours:    []types.NamespacedName{work.own, work.config},
		user: func(ctx context.Context) (string, error) {
			var proxy configv1.Proxy
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
			&configv1.Infrastructure{}:  named(openshift.ClusterName),
			&configv1.Network{}:         named(openshift.ClusterName),
			&configv1.Proxy{}:           named(openshift.ClusterName),
			&configv1.FeatureGate{}:     named(openshift.ClusterName),
			&configv1.ClusterOperator{}: named(status.Name),
		},
	}
}

// cluster is the name of OpenShift's objects, and that of all work.
var cluster = daemon.All

// controller does work when it is woken, and says how that went.
type controller struct {
	name string
	// sync does the work; it returns what of its input it left out.
	sync   func(context.Context) (left string, err error)
	status *status.SyncWriter
	window *failure.Window
	now    func() time.Time
	log    *slog.Logger

	// objects, ConfigMaps that are ours, and that of administrators whose name user
	// returns, wake it.
	objects []client.Object
	ours    []types.NamespacedName
	user    func(context.Context) (string, error)
}

func (c *controller) add(mgr manager.Manager, resync time.Duration, log *slog.Logger) error {
	c.now, c.log = time.Now, log.With("controller", c.name)
	several := true // managers in one process, in tests
	b := builder.ControllerManagedBy(mgr).Named(c.name).
		WithOptions(ctrl.Options{
			SkipNameValidation: &several,
			RateLimiter:        daemon.RateLimiter(c.window.Retry()),
		}).
		WatchesRawSource(daemon.Periodically(resync, daemon.Everything)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.configMap)).
		Watches(&configv1.ClusterOperator{}, handler.EnqueueRequestsFromMapFunc(daemon.Everything), builder.WithPredicates(c.unsaid()))
	for _, o := range c.objects {
		b.Watches(o, handler.EnqueueRequestsFromMapFunc(daemon.Everything))
	}
	return b.Complete(c)
}

// configMap lets through those that matter: an unrelated one must not make a
// controller say anything.
func (c *controller) configMap(ctx context.Context, o client.Object) []reconcile.Request {
	if name := client.ObjectKeyFromObject(o); name.Namespace == userNamespace {
		user, err := c.user(ctx)
		if err == nil && user != name.Name {
			return nil
		}
	} else if !slices.Contains(c.ours, name) {
		return nil
	}
	return daemon.Everything(ctx, o)
}

// unsaid lets through a ClusterOperator that lost what the controller says.
func (c *controller) unsaid() predicate.Predicate {
	lacks := func(o client.Object) bool {
		is, ok := o.(*configv1.ClusterOperator)
		return ok && !c.status.Said(is)
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return lacks(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return lacks(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(e event.GenericEvent) bool { return lacks(e.Object) },
	}
}

// Reconcile does the work and reports the result. A failure that only a change of an
// object ends is reported at once and not retried; others are reported when they have
// lasted.
func (c *controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	left, err := c.sync(ctx)
	switch {
	case err == nil:
		c.window.Clear()
		if left != "" {
			c.log.Warn("left out", "what", left)
		}
		return reconcile.Result{}, c.status.Available(ctx, left)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		again, counts := c.window.Conflict(c.now())
		if !counts {
			return reconcile.Result{RequeueAfter: again}, nil
		}
		return reconcile.Result{RequeueAfter: again}, c.status.Degraded(ctx, err)
	case failure.IsTerminal(err):
		c.log.Error("not tried again until something changes", "error", err)
		return reconcile.Result{}, c.status.Degraded(ctx, err)
	case c.window.Observe(c.now()):
		return reconcile.Result{}, errors.Join(err, c.status.Degraded(ctx, err))
	default:
		return reconcile.Result{}, errors.Join(err, c.status.Failing(ctx, err))
	}
}

// Where cloud controller managers and their operator run.
const (
	defaultNamespace  = "openshift-cloud-controller-manager"
	operatorNamespace = "openshift-cloud-controller-manager-operator"
)

// Options are what the controllers need.
type Options struct {
	Namespace     string `flag:"namespace" usage:"namespace of the cloud controller manager"`
	HealthAddress string `flag:"health-addr" default:":9440" usage:"address that answers /healthz and /readyz; 0: none"`
	// Version is the release, or empty.
	Version string
	// SystemBundle is for trustbundle.SystemFile. The file tells nobody of changes: it is
	// looked at after each Resync.
	SystemBundle             string        `flag:"trusted-ca-bundle" usage:"file with the system's authorities; else /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem or, where there is none, /etc/ssl/certs/ca-certificates.crt"`
	CloudConfigDegradedAfter time.Duration `flag:"cloud-config-degraded-after" default:"2m" min:"0s" usage:"how long copying the configuration may fail before the operator is degraded"`
	TrustedCADegradedAfter   time.Duration `flag:"trusted-ca-degraded-after" default:"2m" min:"0s" usage:"how long putting together the authorities may fail before the operator is degraded"`
	TrustedCAStaleAfter      time.Duration `flag:"trusted-ca-window" default:"150s" min:"0s" usage:"after what time without one a failure of the authorities is a new one; 0: never"`
	Resync                   time.Duration `flag:"resync" default:"10m" min:"1ns" usage:"after what time all is looked at though nothing changed"`
	Leader                   daemon.Election
}

// Validate returns what is wrong that no tag can express, by the flag's name.
func (o *Options) Validate() error {
	var faults failure.Faults
	faults.AddIf(o.Namespace == userNamespace || o.Namespace == managedNamespace,
		"--namespace %s: that is where configurations come from; name the one where the cloud controller manager runs", o.Namespace)
	faults.AddIf(o.SystemBundle != "" && !filepath.IsAbs(o.SystemBundle), "--trusted-ca-bundle %q: want an absolute path", o.SystemBundle)
	return errors.Join(append(faults, daemon.CheckNamespace("namespace", o.Namespace), daemon.CheckAddress("health-addr", o.HealthAddress), o.Leader.Validate())...)
}

// Command returns config-sync as a command. It ends with the command's context.
func Command(getenv func(string) string) *cobra.Command {
	o := Options{Namespace: defaultNamespace, Leader: daemon.Election{Name: "cluster-cloud-config-sync-leader", Namespace: operatorNamespace}}
	c := &cobra.Command{
		Use:   "config-sync",
		Short: "Prepare on OpenShift the configuration and the trusted authorities of the cloud controller manager",
		Long: `Prepare on OpenShift the configuration and the trusted authorities of the cloud
controller manager, in the ConfigMaps cloud-conf and ccm-trusted-ca.

The variable RELEASE_VERSION names the release whose feature gates count.`,
	}
	return daemon.Command(c, getenv, "ccm-operator-config-sync", []any{&o, &o.Leader}, o.Validate, func(ctx context.Context, api *rest.Config, logger *slog.Logger) error {
		o.Version = getenv("RELEASE_VERSION")
		logger.Info("starting", "version", version.String(), "release", o.Version, "namespace", o.Namespace)
		return Run(ctx, api, o, logger)
	})
}
