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
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// operatorName is the name of the operator wherever one is asked for.
const operatorName = "ccm-operator"

// apis says which kinds a cluster has.
type apis struct {
	openShift, ccm, kubeControllerManager bool
	topology                              openshift.TopologyMode
}

// Run works until the context ends.
func Run(ctx context.Context, api *rest.Config, o Options, log *slog.Logger) error {
	if err := o.Validate(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), openshift.AddToScheme(scheme), ccmv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	apis, err := detectAPIs(ctx, api, scheme)
	if err != nil {
		return err
	}
	if err := o.Leader.Check(ctx, api); err != nil {
		return err
	}
	// TLS settings of the cluster count for our own server as soon as they are read.
	own := &inputs{o: &o, now: time.Now}
	several := true // operators in one process, in tests
	unseen := &unseen{}
	options := manager.Options{
		Controller: config.Controller{SkipNameValidation: &several, CacheSyncTimeout: o.watchWithin},
		Scheme:     scheme, Logger: logr.FromSlogHandler(log.Handler()), Cache: o.cacheOptions(unseen),
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                o.metricsOptions(own),
		HealthProbeBindAddress: o.HealthAddress,
	}
	o.Leader.Apply(&options, apis.topology)
	mgr, err := manager.New(api, options)
	if err != nil {
		return fmt.Errorf("reach the cluster at %s: %w", api.Host, err)
	}
	if err := errors.Join(o.addControllers(mgr, apis, own, log), addMetrics(mgr, apis, log), daemon.AddChecks(mgr)); err != nil {
		return err
	}
	return unseen.because(mgr.Start(ctx))
}

// detectAPIs finds out which of the kinds that configure the operator the cluster
// has.
func detectAPIs(ctx context.Context, api *rest.Config, scheme *runtime.Scheme) (apis, error) {
	operator, ccm := openshift.GroupVersion.WithKind("ClusterOperator"), ccmv1alpha1.GroupVersion.WithKind("CloudControllerManager")
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
