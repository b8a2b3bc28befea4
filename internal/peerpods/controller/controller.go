// SPDX-License-Identifier: Apache-2.0

// Package controller makes the cloud agree with the PeerPods of the cluster.
//
// Three loops share one set of providers:
//
//   - reconcile looks at one PeerPod: it removes what one in deletion claims
//     and lets it go when the cloud shows nothing any more; it adopts the
//     instance of one whose node never noted it; it deletes PeerPods that lost
//     their node and pod or were replaced by a younger sandbox of the pod;
//   - sweep checks one provider's list: instances that no PeerPod claims, and
//     second instances of one sandbox, are removed after a grace period;
//   - settings watches the ConfigMap and the Secret.
//
// Two more, [Pools] and [PoolVMs], keep VMs ready for pods: PodVMPools.
//
// Every decision is made from the current state of API and cloud. State in
// memory only saves calls, so the controller can be killed at any time.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/provider"
)

// Indexes of PeerPods in the cache.
const (
	indexPod  = "spec.podUID"
	indexNode = "spec.nodeName"
)

// Scheme has the types that the controller reads and writes, and no others.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a type registered twice: seen by every test
		}
	}
	return scheme
}

// CacheOptions keep in memory what is needed: PeerPods, nodes by their
// metadata, one ConfigMap and one Secret.
func CacheOptions(namespace string) cache.Options {
	only := func(name string) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", name)},
		}}
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: only(ConfigMapName),
			&corev1.Secret{}:    only(SecretName),
		},
	}
}

// ErrNoCRD means that the resource is not installed.
type ErrNoCRD struct{ error }

func (e ErrNoCRD) Unwrap() error { return e.error }

// CheckCRD returns an error when the cluster has no PeerPods. Waiting for them
// silently would look like a controller that works.
func CheckCRD(mapper meta.RESTMapper) error {
	kind := v1alpha1.GroupVersion.WithKind("PeerPod").GroupKind()
	_, err := mapper.RESTMapping(kind, v1alpha1.GroupVersion.Version)
	if meta.IsNoMatchError(err) {
		return ErrNoCRD{fmt.Errorf("the cluster has no resource %s.%s/%s: install it with kubectl apply -k deploy/base/crd, then start this again",
			v1alpha1.Resource, v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version)}
	}
	return err
}

// Add adds the three loops to the manager. Call Close of the returned value
// after the manager has stopped; it ends what they started outside of it.
func Add(mgr manager.Manager, o Options) (*cloud.Clouds, error) {
	o.complete()
	if o.Cluster == "" {
		return nil, fmt.Errorf("%w: the cluster's identity is empty: it tells own instances from those of others", provider.ErrInvalidArgument)
	}
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), controllers.NewRecorder(mgr.GetEventRecorder("peerpod-ctrl"), o.Cloud.Now), o)
	if err := index(mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	for _, add := range []func(manager.Manager, *Reconciler) error{addPeerPods, addSettings, addPools} {
		if err := add(mgr, r); err != nil {
			return nil, err
		}
	}
	return r.clouds, mgr.Add(&Sweeper{Reconciler: r})
}

// newReconciler returns one whose client reads from a cache and live does not.
func newReconciler(cached client.Client, live client.Reader, recorder *controllers.Recorder, o Options) *Reconciler {
	r := &Reconciler{
		cached: cached, live: live, writer: cached, claims: &claims.Claims{API: claimsAPI{cached, live}},
		events: reporter{recorder}, metrics: newMeters(o.Registry),
		options: o, log: o.Log, now: o.Cloud.Now,
	}
	if r.now == nil {
		r.now = time.Now
	}
	o.Cloud.Owner = map[string]string{provider.TagCluster: provider.TagValue(o.Cluster)}
	o.Cloud.Listed = r.waiters.wake
	o.Cloud.Observe = r.metrics.observe
	o.Cloud.Log = o.Log
	r.clouds = cloud.New(o.Cloud)
	return r
}

func index(indexer client.FieldIndexer) error {
	for name, of := range map[string]func(*v1alpha1.PeerPod) string{
		indexPod:  func(pp *v1alpha1.PeerPod) string { return string(claims.PodUID(pp)) },
		indexNode: func(pp *v1alpha1.PeerPod) string { return pp.Spec.NodeName },
	} {
		err := indexer.IndexField(context.Background(), &v1alpha1.PeerPod{}, name, func(object client.Object) []string {
			if value := of(object.(*v1alpha1.PeerPod)); value != "" {
				return []string{value}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Failed reconciliations are retried with exponential backoff.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

func addPeerPods(mgr manager.Manager, r *Reconciler) error {
	c, err := controller.New("peerpod", mgr, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: r.options.Workers,
		RateLimiter:    workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		LogConstructor: logConstructor(mgr.GetLogger(), "peerpod"),
	})
	if err != nil {
		return err
	}
	if err := c.Watch(source.Func(func(_ context.Context, q queue) error { r.waiters.start(q); return nil })); err != nil {
		return err
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), &v1alpha1.PeerPod{}, &handler.TypedEnqueueRequestForObject[*v1alpha1.PeerPod]{})); err != nil {
		return err
	}
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	return c.Watch(source.Kind[client.Object](mgr.GetCache(), nodeMetadata(), handler.EnqueueRequestsFromMapFunc(r.ofNode), gone))
}

// addPools adds the controllers of PodVMPools and of their VMs.
func addPools(mgr manager.Manager, r *Reconciler) error {
	kind := v1alpha1.GroupVersion.WithKind("PodVMPool").GroupKind()
	if _, err := mgr.GetRESTMapper().RESTMapping(kind, v1alpha1.GroupVersion.Version); meta.IsNoMatchError(err) {
		r.log.Warn("there are no pools of VMs: the cluster has no resource " + v1alpha1.PoolResource + "; install it with kubectl apply -k deploy/base/crd, then start this again")
		return nil
	}
	pools := newPools(r)
	ofPool := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, pp *v1alpha1.PeerPod) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pp.Spec.Pool.Name}}}
	})
	isMember := predicate.NewTypedPredicateFuncs(func(pp *v1alpha1.PeerPod) bool {
		return pp.Spec.Pool != nil && pp.Namespace == r.options.Namespace
	})
	c, err := controller.New("podvmpool", mgr, controller.Options{Reconciler: pools, LogConstructor: logConstructor(mgr.GetLogger(), "podvmpool")})
	if err != nil {
		return err
	}
	vms, err := controller.New("poolvm", mgr, controller.Options{
		Reconciler: pools.vms, MaxConcurrentReconciles: r.options.PoolStarting,
		RateLimiter:    workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		LogConstructor: logConstructor(mgr.GetLogger(), "peerpod"),
	})
	if err != nil {
		return err
	}
	return errors.Join(
		c.Watch(source.Kind(mgr.GetCache(), &v1alpha1.PodVMPool{}, &handler.TypedEnqueueRequestForObject[*v1alpha1.PodVMPool]{})),
		c.Watch(source.Kind(mgr.GetCache(), &v1alpha1.PeerPod{}, ofPool, isMember)),
		vms.Watch(source.Kind(mgr.GetCache(), &v1alpha1.PeerPod{}, &handler.TypedEnqueueRequestForObject[*v1alpha1.PeerPod]{}, isMember)),
	)
}

// logConstructor names the object, of that kind, with the keys of all our logs.
func logConstructor(log logr.Logger, kind string) func(*reconcile.Request) logr.Logger {
	return func(request *reconcile.Request) logr.Logger {
		if request == nil {
			return log
		}
		return log.WithValues("namespace", request.Namespace, kind, request.Name)
	}
}

// ofNode returns the PeerPods of a node.
func (r *Reconciler) ofNode(ctx context.Context, node client.Object) []reconcile.Request {
	var all v1alpha1.PeerPodList
	if err := r.cached.List(ctx, &all, client.MatchingFields{indexNode: node.GetName()}); err != nil {
		return nil // the sweep finds them
	}
	var requests []reconcile.Request
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}

func addSettings(mgr manager.Manager, r *Reconciler) error {
	c, err := controller.New("settings", mgr, controller.Options{Reconciler: &Settings{r}, LogConstructor: logConstructor(mgr.GetLogger(), "settings")})
	if err != nil {
		return err
	}
	one := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.options.Namespace, Name: ConfigMapName}}
	always := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{one} })
	for _, object := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}} {
		if err := c.Watch(source.Kind(mgr.GetCache(), object, always)); err != nil {
			return err
		}
	}
	// If neither object exists there is no event, but the providers have to be
	// configured.
	return c.Watch(source.Func(func(_ context.Context, q queue) error { q.Add(one); return nil }))
}

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
	// PoolStarting bounds the VMs of one pool that are made at the same time: 10.
	PoolStarting int `flag:"pool-starting" default:"10" min:"1" usage:"VMs of a PodVMPool that are made at the same time"`
}

// Names of the objects with the settings.
const (
	ConfigMapName = "peer-pods-cm"
	SecretName    = "peer-pods-secret"
)

func (o *Options) complete() {
	o.Workers = cmp.Or(o.Workers, 16)
	o.Sweepers = cmp.Or(o.Sweepers, 8)
	o.PoolStarting = cmp.Or(o.PoolStarting, 10)
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
