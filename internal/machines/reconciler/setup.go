// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Watching configures a controller's watches.
type Watching struct {
	// Concurrency is how many objects are reconciled at the same time.
	Concurrency int
	// Enqueuer, if any, is that of the kind's backend.
	Enqueuer *Enqueuer
}

// Failures are retried with exponential backoff.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

func (w Watching) options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: w.Concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// controller begins a controller of the kind of an object.
func (b *Base) controller(mgr manager.Manager, o client.Object, w Watching, changes predicate.Predicate) (*builder.Builder, schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(o, mgr.GetScheme())
	c := builder.ControllerManagedBy(mgr).Named(strings.ToLower(gvk.Kind)).WithOptions(w.options()).
		For(o, builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), mgr.GetLogger(), b.Filter), changes))
	if w.Enqueuer != nil {
		c = c.WatchesRawSource(w.Enqueuer.Source())
	}
	return c, gvk, err
}

// inClusters is controller for a kind whose objects, in list, are reconciled when their Cluster changes.
func (b *Base) inClusters(mgr manager.Manager, o client.Object, list client.ObjectList, w Watching) (*builder.Builder, schema.GroupVersionKind, error) {
	c, gvk, err := b.controller(mgr, o, w, ownChanges())
	if err != nil {
		return nil, gvk, err
	}
	ofClusters, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), list, mgr.GetScheme())
	return c.Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofClusters), builder.WithPredicates(clusterChanges())), gvk, err
}

func complete(b *builder.Builder, r reconcile.Reconciler, gvk schema.GroupVersionKind) error {
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up the controller of %s: %w", gvk.Kind, err)
	}
	return nil
}

// Setup adds the reconciler to the manager.
func (r *ClusterReconciler) Setup(mgr manager.Manager, machine client.Object, w Watching) error {
	r.Complete()
	b, gvk, err := r.controller(mgr, r.New(), w, ownChanges())
	if err != nil {
		return err
	}
	return complete(b.
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster(gvk.GroupKind())), builder.WithPredicates(clusterChanges())).
		Watches(machine, handler.EnqueueRequestsFromMapFunc(r.ofMachine), builder.WithPredicates(machineEnds())), r, gvk)
}

// Setup adds the reconciler to the manager.
func (r *MachineReconciler) Setup(mgr manager.Manager, list client.ObjectList, w Watching) error {
	r.Complete()
	b, gvk, err := r.inClusters(mgr, r.New(), list, w)
	if err != nil {
		return err
	}
	return complete(b.Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(gvk)), builder.WithPredicates(specChanges())), r, gvk)
}

// ofCluster returns the infrastructure that a Cluster names. The reconciler
// checks who manages it.
func ofCluster(kind schema.GroupKind) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		cluster, ok := o.(*clusterv1.Cluster)
		if !ok || cluster.Spec.InfrastructureRef.GroupKind() != kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Spec.InfrastructureRef.Name}}}
	}
}

// ofMachine returns the infrastructure of the cluster that a machine was of, if
// that is being deleted: it waits for the end of its machines.
func (r *ClusterReconciler) ofMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	cluster, err := clusterNamed(ctx, r.Client, machine.GetNamespace(), machine.GetLabels()[clusterv1.ClusterNameLabel])
	if err != nil || cluster == nil || cluster.Spec.InfrastructureRef.Name == "" {
		return nil // a cluster in deletion polls
	}
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Spec.InfrastructureRef.Name}
	// A cluster that the cache does not show as deleted yet checks its machines
	// later.
	infra := r.New()
	if err := r.Client.Get(ctx, name, infra); err != nil || infra.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// specChanges leaves out updates of a status: only spec and metadata of a
// Machine matter here.
func specChanges() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// clusterChanges passes the changes of a Cluster that matter to infrastructure.
func clusterChanges() predicate.Predicate {
	provisioned := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return infrastructureThere(e.ObjectOld) != infrastructureThere(e.ObjectNew)
	}}
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, provisioned)
}

func infrastructureThere(o runtime.Object) bool {
	cluster, ok := o.(*clusterv1.Cluster)
	return ok && cluster.Status.Initialization.InfrastructureProvisioned != nil && *cluster.Status.Initialization.InfrastructureProvisioned
}

// machineEnds passes the changes of a machine's infrastructure that matter to its
// cluster's.
func machineEnds() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// ownChanges leaves out the controller's own writes of a status: they would
// trigger a reconciliation at once, during the backoff after an error, and
// hammer a cloud that refuses. Fields that somebody removed from a status, and
// resyncs, pass.
func ownChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(object)
		is, ok2 := e.ObjectNew.(object)
		if !ok || !ok2 || was.GetResourceVersion() == is.GetResourceVersion() || lacks(was, is) {
			return true
		}
		return was.GetGeneration() != is.GetGeneration() || was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero() ||
			!maps.Equal(was.GetLabels(), is.GetLabels()) || !maps.Equal(was.GetAnnotations(), is.GetAnnotations()) ||
			!slices.Equal(was.GetFinalizers(), is.GetFinalizers()) || !equality.Semantic.DeepEqual(was.GetOwnerReferences(), is.GetOwnerReferences())
	}}
}

// lacks reports whether a status has lost fields that no controller removes.
func lacks(was, is object) bool {
	if initialized(was) && !initialized(is) {
		return true
	}
	return slices.ContainsFunc(was.ContractStatus().Conditions, func(c metav1.Condition) bool { return condition(is, c.Type) == nil })
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Enqueuer lets a backend enqueue objects that have news; there is one for each
// kind. Its zero value is ready for use and its methods never block.
type Enqueuer struct {
	mu      sync.Mutex
	queue   queue
	pending []reconcile.Request
}

// Enqueue enqueues the object. Before the controller has started, the request is
// kept.
func (w *Enqueuer) Enqueue(object types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	request := reconcile.Request{NamespacedName: object}
	if w.queue == nil {
		if !slices.Contains(w.pending, request) {
			w.pending = append(w.pending, request)
		}
		return
	}
	w.queue.Add(request)
}

// Source returns the source for a controller to watch.
func (w *Enqueuer) Source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = q
		for _, request := range w.pending {
			q.Add(request)
		}
		w.pending = nil
		return nil
	})
}
