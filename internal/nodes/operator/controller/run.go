// SPDX-License-Identifier: Apache-2.0

// Package controller deploys the cloud controller manager that fits a cluster, and
// keeps it as it should be.
//
// On OpenShift the cluster says what it runs on: see openShift. Elsewhere a
// CloudControllerManager does: see ccmReconciler. Both make objects of a bundle and
// give them to the same [Deployer].
package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

const operatorName = "ccm-operator"

type apis struct {
	openShift, ccm, kubeControllerManager bool
	topology                              configv1.TopologyMode
}

// Run works until the context ends, with valid options.
func Run(ctx context.Context, api *rest.Config, o Options, log *slog.Logger) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), configv1.Install(scheme), ccmv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	apis, err := detectAPIs(ctx, api, scheme)
	if err != nil {
		return err
	}
	// TLS settings of the cluster count for our own server as soon as they are read.
	own := &inputs{o: &o, now: time.Now}
	several := true // operators in one process, in tests
	unseen := &unseen{}
	options := manager.Options{
		Controller: config.Controller{SkipNameValidation: &several, CacheSyncTimeout: o.watchWithin},
		Scheme:     scheme, Cache: o.cacheOptions(unseen),
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                o.metricsOptions(own),
		HealthProbeBindAddress: o.HealthAddress,
	}
	mgr, err := daemon.NewManager(ctx, api, log, options, o.Leader, apis.topology)
	if err != nil {
		return err
	}
	if err := errors.Join(o.addControllers(mgr, apis, own, log), addMetrics(mgr, apis, log)); err != nil {
		return err
	}
	return unseen.because(mgr.Start(ctx))
}

// detectAPIs finds out which of the kinds that configure the operator the cluster
// has.
func detectAPIs(ctx context.Context, api *rest.Config, scheme *runtime.Scheme) (apis, error) {
	operator, ccm := configv1.GroupVersion.WithKind("ClusterOperator"), ccmv1alpha1.GroupVersion.WithKind("CloudControllerManager")
	there, topology, err := daemon.Detect(ctx, api, scheme, operator, ccm, openshift.KubeControllerManagerKind)
	if err == nil && !there[operator] && !there[ccm] {
		err = fmt.Errorf("the cluster at %s has neither the kind CloudControllerManager of %s nor OpenShift's ClusterOperator: install the former, which is in deploy/ccm-operator/crd",
			api.Host, ccmv1alpha1.GroupVersion.Group)
	}
	return apis{openShift: there[operator], ccm: there[ccm], kubeControllerManager: there[openshift.KubeControllerManagerKind], topology: topology}, err
}

// cacheOptions keep what is watched to where operands are.
func (o *Options) cacheOptions(unseen *unseen) cache.Options {
	return cache.Options{
		DefaultWatchErrorHandler: unseen.note,
		DefaultTransform:         cache.TransformStripManagedFields(),
		DefaultNamespaces: map[string]cache.Config{
			o.Namespace: {}, o.OperatorNamespace: {}, metav1.NamespaceSystem: {},
		},
		// Secrets of others are not cached.
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.Namespace: {}}},
			&corev1.Pod{}:    {Namespaces: map[string]cache.Config{o.Namespace: {}}},
			// That of the cloud controller manager.
			&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{o.Namespace: {}}},
		},
	}
}

func (o *Options) metricsOptions(own *inputs) metricsserver.Options {
	if o.MetricsAddress == "0" || o.MetricsAddress == "" {
		return metricsserver.Options{BindAddress: "0"}
	}
	certificate := &daemon.Certificate{Dir: o.MetricsCertificates}
	return metricsserver.Options{
		BindAddress: o.MetricsAddress, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = certificate.Get }, own.serve},
	}
}

// serve makes a server use the settings that were read last.
func (r *inputs) serve(c *tls.Config) {
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		now.GetConfigForClient = nil
		if s := r.tls.Load(); s != nil {
			s.Apply(now)
		} else {
			r.o.TLS.Apply(now)
		}
		return now, nil
	}
}

// watchOperands enqueues what requests returns for the inventory of an applied object.
func watchOperands(b *builder.Builder, requests func(owner string) []reconcile.Request) {
	wake := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requests(o.GetAnnotations()[apply.OwnerAnnotation])
	})
	for _, gvk := range apply.Kinds() {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(gvk)
		b.Watches(o, wake, builder.WithPredicates(changed()))
	}
}

// ownedBy enqueues the singleton request for the objects in a deployer's inventory.
func ownedBy(d *Deployer) func(owner string) []reconcile.Request {
	return func(owner string) []reconcile.Request {
		if owner != d.Inventory.String() {
			return nil
		}
		return []reconcile.Request{{NamespacedName: cluster}}
	}
}

// changed drops updates without a change: an object written as it was, or only
// with other managedFields.
func changed() predicate.Predicate {
	return changedBut(func(client.Object) {})
}

// userChanges drops the operator's own status updates of a CloudControllerManager.
// Otherwise it would never rest when they differ each time: with API servers of two
// patches that answer in turn, or errors with a time in them.
func userChanges() predicate.Predicate {
	return changedBut(func(o client.Object) {
		if m, ok := o.(*ccmv1alpha1.CloudControllerManager); ok {
			m.Status = ccmv1alpha1.CloudControllerManagerStatus{}
		}
	})
}

// changedBut is changed, except for what drop removes from an object.
func changedBut(drop func(client.Object)) predicate.Predicate {
	rest := func(o client.Object) client.Object {
		c := o.DeepCopyObject().(client.Object)
		c.SetResourceVersion("")
		c.SetManagedFields(nil)
		drop(c)
		return c
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !reflect.DeepEqual(rest(e.ObjectOld), rest(e.ObjectNew))
	}}
}

// unseen records why a watch fails. The library retries for ever, and at last
// only reports a time-out.
type unseen struct{ last atomic.Pointer[error] }

func (u *unseen) note(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		u.last.Store(&err) // others pass by themselves
	}
}

// because adds the reason to the error with which an operator ends, if it ends
// with one.
func (u *unseen) because(err error) error {
	if why := u.last.Load(); err != nil && why != nil {
		return fmt.Errorf("%w: a watch failed last with: %w", err, *why)
	}
	return err
}

var conditionMetric = prometheus.NewDesc("outrigger_ccm_condition",
	"Conditions of CloudControllerManagers and of the ClusterOperator: 1 is True, 0 any other status.",
	[]string{"kind", "name", "condition", "reason"}, nil)

// conditions makes metrics of what is said in conditions, whoever says it: they are
// read again each time that somebody scrapes.
type conditions struct {
	client client.Reader
	apis   apis
	log    *slog.Logger
}

// addMetrics registers the metrics until the manager's context ends. Of several
// operators in one process, as tests have, the first has them.
func addMetrics(mgr manager.Manager, apis apis, log *slog.Logger) error {
	c := &conditions{client: mgr.GetClient(), apis: apis, log: log}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if metrics.Registry.Register(c) != nil {
			return nil
		}
		<-ctx.Done()
		metrics.Registry.Unregister(c)
		return nil
	}))
}

// Describe implements [prometheus.Collector].
func (c *conditions) Describe(to chan<- *prometheus.Desc) { to <- conditionMetric }

// Collect implements [prometheus.Collector].
func (c *conditions) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	send := func(kind, name, condition, status, reason string) {
		value := 0.0
		if status == "True" {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(conditionMetric, prometheus.GaugeValue, value, kind, name, condition, reason)
	}
	if c.apis.ccm {
		var all ccmv1alpha1.CloudControllerManagerList
		if err := c.client.List(ctx, &all); err != nil {
			c.log.Error("metrics lack the conditions of CloudControllerManagers", "error", err)
		}
		for _, m := range all.Items {
			for _, s := range m.Status.Conditions {
				send("CloudControllerManager", m.Name, s.Type, string(s.Status), s.Reason)
			}
		}
	}
	if c.apis.openShift {
		var o configv1.ClusterOperator
		if err := c.client.Get(ctx, client.ObjectKey{Name: status.Name}, &o); err != nil {
			c.log.Error("metrics lack the conditions of the ClusterOperator", "error", err)
		}
		for _, s := range o.Status.Conditions {
			send("ClusterOperator", status.Name, string(s.Type), string(s.Status), s.Reason)
		}
	}
}
