// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/provider"
)

// Reconciler brings the cloud in line with one PeerPod at a time.
type Reconciler struct {
	cached  client.Reader
	live    client.Reader // past the cache
	writer  client.Client
	claims  *claims.Claims
	clouds  *cloud.Clouds
	events  reporter
	metrics *meters
	options Options
	log     *slog.Logger
	now     func() time.Time

	removals sync.Map // *removal by UID
	waiters  waiters
}

// operatorPause is the backoff after errors that only an operator can fix; new
// settings are tried at once.
const operatorPause = 5 * time.Minute

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pp := &v1alpha1.PeerPod{}
	switch there, err := r.read(ctx, request, pp); {
	case !there:
		return reconcile.Result{}, err
	case pp.DeletionTimestamp != nil:
		return ignoreStale(r.remove(ctx, pp))
	}
	return ignoreStale(r.keep(ctx, pp))
}

// read waits until the providers are configured and reads the object of a request; false if there is none.
func (r *Reconciler) read(ctx context.Context, request reconcile.Request, into client.Object) (bool, error) {
	select {
	case <-r.clouds.Ready():
	case <-ctx.Done():
		return false, ctx.Err()
	}
	err := r.cached.Get(ctx, request.NamespacedName, into)
	return err == nil, client.IgnoreNotFound(err)
}

// ignoreStale ignores errors that only mean that the object has changed meanwhile:
// it is in the queue again already.
func ignoreStale(result reconcile.Result, err error) (reconcile.Result, error) {
	if errors.IsConflict(err) || errors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return result, err
}

// keep reconciles a PeerPod that is in use.
func (r *Reconciler) keep(ctx context.Context, pp *v1alpha1.PeerPod) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(pp, claims.Finalizer) {
		_, err := r.claims.Update(ctx, pp, claims.Guarded) // somebody removed it
		return reconcile.Result{}, err
	}
	if err := r.supersede(ctx, pp); err != nil {
		return reconcile.Result{}, err
	}
	gone, err := r.abandoned(ctx, pp)
	if err != nil {
		return reconcile.Result{}, err
	}
	if gone {
		r.events.warn(pp, claims.ReasonNodeLost, "Delete", fmt.Sprintf("node %s and the pod are gone: removing the instance", pp.Spec.NodeName))
		return reconcile.Result{}, r.claims.API.Delete(ctx, pp.Namespace, pp.Name, pp.UID)
	}
	if err := r.mention(ctx, pp); err != nil {
		return reconcile.Result{}, err
	}
	if pp.Spec.Pool != nil {
		return reconcile.Result{}, nil // see PoolVMs
	}
	return r.adopt(ctx, pp)
}

// supersede deletes the older PeerPods of a pod whose present sandbox is ready:
// their node lost track of them and will not delete them.
func (r *Reconciler) supersede(ctx context.Context, pp *v1alpha1.PeerPod) error {
	uid := claims.PodUID(pp)
	if uid == "" || claims.PhaseOf(pp) != v1alpha1.PhaseReady {
		return nil
	}
	var all v1alpha1.PeerPodList
	if err := r.cached.List(ctx, &all, client.InNamespace(pp.Namespace), client.MatchingFields{indexPod: string(uid)}); err != nil {
		return err
	}
	for i := range all.Items {
		old := &all.Items[i]
		if old.DeletionTimestamp != nil || !old.CreationTimestamp.Before(&pp.CreationTimestamp) {
			continue
		}
		r.events.tell(old, claims.ReasonSuperseded, "Delete", "sandbox "+pp.Spec.SandboxID+" of the same pod replaced this one")
		if err := r.claims.API.Delete(ctx, old.Namespace, old.Name, old.UID); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// abandoned reports whether node and pod are gone. If the cache says so it asks the API
// server as well.
func (r *Reconciler) abandoned(ctx context.Context, pp *v1alpha1.PeerPod) (bool, error) {
	if pp.Spec.NodeName == "" || pp.Spec.Pool != nil { // a VM that was taken from a pool goes with its pod's own PeerPod
		return false, nil
	}
	for _, reader := range []client.Reader{r.cached, r.live} {
		err := reader.Get(ctx, types.NamespacedName{Name: pp.Spec.NodeName}, nodeMetadata())
		if !errors.IsNotFound(err) {
			return false, err
		}
	}
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := r.live.Get(ctx, types.NamespacedName{Namespace: pp.Namespace, Name: claims.PodName(pp)}, pod)
	if errors.IsNotFound(err) || claims.PodName(pp) == "" {
		return true, nil
	}
	return err == nil && pod.UID != claims.PodUID(pp), err
}

func nodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}

// mention records on the PeerPod when its provider cannot list. Other errors of
// a provider are reported where they matter.
func (r *Reconciler) mention(ctx context.Context, pp *v1alpha1.PeerPod) error {
	c, err := r.clouds.Get(pp.Spec.CloudProvider)
	if err != nil {
		return nil
	}
	_, err = r.claims.Update(ctx, pp, claims.Listed(c.CanList(), c.Name))
	return err
}

// adopt records the instance of a PeerPod whose node created it and never
// recorded it.
func (r *Reconciler) adopt(ctx context.Context, pp *v1alpha1.PeerPod) (reconcile.Result, error) {
	if pp.Spec.InstanceID != "" || pp.Spec.SandboxID == "" || !r.ourCluster(pp) {
		return reconcile.Result{}, nil
	}
	if wait := r.options.Adopt - r.now().Sub(pp.CreationTimestamp.Time); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	c, err := r.clouds.Get(pp.Spec.CloudProvider)
	if err != nil {
		return reconcile.Result{}, nil
	}
	snapshot, _, _ := c.Latest()
	instance := eldest(r.claimed(snapshot, pp))
	if instance == nil {
		return reconcile.Result{}, nil // the sweep enqueues it again
	}
	r.events.tell(pp, claims.ReasonAdopted, "Adopt", fmt.Sprintf("instance %s was created for this sandbox and not recorded by node %s", instance.ID, pp.Spec.NodeName))
	_, err = r.claims.Update(ctx, pp, func(now *v1alpha1.PeerPod) {
		if now.Spec.InstanceID == "" || now.Spec.InstanceID == instance.ID {
			claims.Created(describe(instance))(now)
		}
	})
	return reconcile.Result{}, err
}

// ourCluster reports whether the PeerPod is of this cluster. One restored from
// another cluster's backup names instances of that cluster.
func (r *Reconciler) ourCluster(pp *v1alpha1.PeerPod) bool {
	return pp.Spec.ClusterID == "" || pp.Spec.ClusterID == r.options.Cluster
}

// eldest returns the oldest instance that is not being deleted; nil if none.
func eldest(instances []*provider.Instance) *provider.Instance {
	var first *provider.Instance
	for _, instance := range instances {
		if instance.State != provider.StateDeleting && (first == nil || instance.Created.Before(first.Created)) {
			first = instance
		}
	}
	return first
}

// describe returns an instance as a status records it.
func describe(i *provider.Instance) v1alpha1.Instance {
	about := v1alpha1.Instance{ID: i.ID, Name: i.Name, Type: i.Type, Zone: cmp.Or(i.Zone, i.Region)}
	for _, addr := range i.IPs {
		about.Addresses = append(about.Addresses, addr.String())
	}
	return about
}
