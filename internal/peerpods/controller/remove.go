// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/provider"
)

// statusAfter is how long a removal may take before its status is written:
// most are over before anybody could look.
const statusAfter = 5 * time.Second

// repeatAfter is how long an instance in deletion may stay in the list until it
// is deleted again: the remains of a failed deletion look the same.
const repeatAfter = 2 * time.Minute

// fallback is when a PeerPod that waits for a list is reconciled anyway, in
// case the list was lost with a change of settings.
const fallback = 30 * time.Second

// remove deletes the instances of a PeerPod in deletion, and drops its
// finalizer when the cloud lists none.
func (r *Reconciler) remove(ctx context.Context, pp *v1alpha1.PeerPod) (reconcile.Result, error) {
	switch {
	case !controllerutil.ContainsFinalizer(pp, claims.Finalizer):
		r.removals.Delete(pp.UID)
		return reconcile.Result{}, nil
	case !r.ourCluster(pp):
		return r.refuseCluster(ctx, pp)
	case pp.Spec.InstanceID == "" && pp.Spec.SandboxID == "":
		return reconcile.Result{}, r.removeFinalizer(ctx, pp)
	}
	c, err := r.clouds.Get(pp.Spec.CloudProvider)
	if err != nil {
		return r.failed(ctx, pp, missingProvider{err})
	}
	if foreignMade(pp) {
		return r.removeForeignMade(ctx, pp, c)
	}
	done, result, err := r.clear(ctx, pp, c)
	if err != nil {
		return r.failed(ctx, pp, err)
	}
	if !done {
		if r.now().Sub(pp.DeletionTimestamp.Time) >= statusAfter {
			_, err = r.claims.Update(ctx, pp, claims.Deleting(claims.ReasonWaitingForCloud, "the instance was deleted; the cloud still shows it or has not been asked yet"))
		}
		return result, err
	}
	if !c.CanList() && !c.CanGet() {
		r.events.tell(pp, claims.ReasonRemovedUnverified, "Delete",
			fmt.Sprintf("provider %s reports that instance %s is deleted; it cannot list or look up instances to confirm that", c.Name, pp.Spec.InstanceID))
	}
	return reconcile.Result{}, r.removeFinalizer(ctx, pp)
}

// clear deletes instances and reports whether none is left. If some may be, the
// result says when to requeue.
func (r *Reconciler) clear(ctx context.Context, pp *v1alpha1.PeerPod, c *cloud.Cloud) (bool, reconcile.Result, error) {
	known := r.removal(pp.UID)
	deleted := known.done
	snapshot, began, listErr := c.Latest()
	doomed := r.claimed(snapshot, pp)
	if deleted.IsZero() || r.now().Sub(deleted) < repeatAfter {
		doomed = slices.DeleteFunc(doomed, func(i *provider.Instance) bool { return i.State == provider.StateDeleting })
	}
	if deleted.IsZero() || newer(snapshot, deleted) && len(doomed) > 0 {
		if err := r.deleteAll(ctx, pp, c, snapshot, doomed); err != nil {
			return false, reconcile.Result{}, err
		}
		deleted = r.now()
		known.done = deleted
	}
	// The instance may still be being created. The deletion's timestamp does not count: it
	// is by another clock, with which the PeerPod might stay too long or go too early.
	if pp.Spec.InstanceID == "" {
		if known.asked.IsZero() {
			known.asked = r.now()
		}
		if wait := r.options.Settle - r.now().Sub(known.asked); wait > 0 {
			return false, reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	if !c.CanList() {
		return r.confirmByGet(ctx, pp, c)
	}
	if newer(snapshot, deleted) {
		if len(r.claimed(snapshot, pp)) == 0 {
			return true, reconcile.Result{}, nil
		}
		deleted = snapshot.Began // seen going away: ask for a later list
	}
	r.waiters.add(c.Name, pp)
	if listErr != nil && began.After(deleted) {
		c.Want(began)
		return false, reconcile.Result{}, listErr
	}
	c.Want(deleted)
	return false, reconcile.Result{RequeueAfter: fallback}, nil
}

func newer(s *cloud.Snapshot, t time.Time) bool { return s != nil && s.Began.After(t) }

// claimed returns the PeerPod's instances in the list: those made with its key
// for its pod, in any state.
func (r *Reconciler) claimed(s *cloud.Snapshot, pp *v1alpha1.PeerPod) []*provider.Instance {
	return slices.DeleteFunc(slices.Clone(s.OfKey(provider.TagValue(pp.Spec.SandboxID))), func(i *provider.Instance) bool { return !madeFor(pp, i) })
}

// madeFor reports whether an instance was made for the PeerPod's pod. Whoever may
// write PeerPods in one namespace could otherwise claim the instance of another
// namespace's pod, by naming its sandbox. Instances that other programs made may
// lack the tag.
func madeFor(pp *v1alpha1.PeerPod, i *provider.Instance) bool {
	says := func(key, want string) bool {
		have, tagged := i.Tags[key]
		return !tagged || have == provider.TagValue(want)
	}
	pod := claims.PodName(pp)
	return says(provider.TagNamespace, pp.Namespace) && (pod == "" || says(provider.TagPod, pod))
}

// deleteAll deletes the instances in doomed, which were made with the PeerPod's
// key, and the instance that the PeerPod names, if it is its own.
func (r *Reconciler) deleteAll(ctx context.Context, pp *v1alpha1.PeerPod, c *cloud.Cloud, snapshot *cloud.Snapshot, doomed []*provider.Instance) error {
	ids := map[string]bool{}
	for _, instance := range doomed {
		ids[instance.ID] = true
	}
	named, err := r.named(ctx, pp, c, snapshot)
	if err != nil {
		return err
	}
	if named != "" {
		ids[named] = true
	}
	for id := range ids {
		if err := c.Delete(ctx, id); err != nil {
			return err
		}
		r.metrics.deleted.WithLabelValues(c.Name, causePeerPod).Inc()
		r.log.Info("deleted the instance of a PeerPod in deletion", "namespace", pp.Namespace, "pod", claims.PodName(pp), "sandbox", pp.Spec.SandboxID, "instance", id, "provider", c.Name)
	}
	return nil
}

// named returns the instance that the PeerPod names, or nothing when there is
// none or it belongs to somebody else: permission to edit a PeerPod must not be
// permission to delete any VM of the account.
func (r *Reconciler) named(ctx context.Context, pp *v1alpha1.PeerPod, c *cloud.Cloud, snapshot *cloud.Snapshot) (string, error) {
	id := pp.Spec.InstanceID
	if id == "" || pp.Spec.PoolVM != "" { // the instance of a pool is removed with the PeerPod that it was made with
		return "", nil
	}
	instance := snapshot.OfID(id)
	if instance == nil && c.CanGet() {
		var err error
		if instance, err = c.Get(ctx, id); errors.Is(err, provider.ErrNotFound) {
			return "", nil
		} else if err != nil {
			return "", err
		}
	}
	// Without Get there is no other proof than the status, which the node wrote and where
	// users may not.
	noted := pp.Status.Instance != nil && pp.Status.Instance.ID == id
	if instance != nil && r.owns(pp, instance) || instance == nil && noted {
		return id, nil
	}
	r.events.warn(pp, claims.ReasonForeignInstance, "Delete",
		fmt.Sprintf("spec.instanceID %s is not the instance of sandbox %q of this cluster: ignoring it", id, pp.Spec.SandboxID))
	return "", nil
}

// owns reports whether the instance carries this cluster's tag and the key, and is
// the pod's.
func (r *Reconciler) owns(pp *v1alpha1.PeerPod, i *provider.Instance) bool {
	return i.Tags[provider.TagCluster] == provider.TagValue(r.options.Cluster) &&
		i.Key != "" && i.Key == provider.TagValue(pp.Spec.SandboxID) && madeFor(pp, i)
}

// confirmByGet confirms the deletion with providers that cannot list.
func (r *Reconciler) confirmByGet(ctx context.Context, pp *v1alpha1.PeerPod, c *cloud.Cloud) (bool, reconcile.Result, error) {
	if pp.Spec.InstanceID == "" || !c.CanGet() {
		return true, reconcile.Result{}, nil
	}
	instance, err := c.Get(ctx, pp.Spec.InstanceID)
	switch {
	case errors.Is(err, provider.ErrNotFound), err == nil && !r.owns(pp, instance):
		return true, reconcile.Result{}, nil
	case err != nil:
		return false, reconcile.Result{}, err
	}
	if instance.State != provider.StateDeleting {
		r.removal(pp.UID).done = time.Time{} // not even being deleted: delete again
	}
	return false, reconcile.Result{RequeueAfter: 2 * time.Second}, nil
}

// removeFinalizer removes the finalizer.
func (r *Reconciler) removeFinalizer(ctx context.Context, pp *v1alpha1.PeerPod) error {
	patch, err := claims.WithoutFinalizer(pp)
	if err != nil {
		return err
	}
	if _, err := r.claims.API.Patch(ctx, pp.Namespace, pp.Name, "", patch); err != nil {
		return err
	}
	r.removals.Delete(pp.UID)
	return nil
}

// failed records why the removal makes no progress and returns when to retry:
// with backoff, or not before an operator has changed something.
func (r *Reconciler) failed(ctx context.Context, pp *v1alpha1.PeerPod, err error) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, err
	}
	r.events.warn(pp, claims.Reason(err), "Delete", err.Error()+"; "+claims.Hint(err))
	_, writeErr := r.claims.Update(ctx, pp, claims.DeletionFailed(err, r.now()))
	if provider.Retryable(err) || writeErr != nil {
		return reconcile.Result{}, errors.Join(err, writeErr)
	}
	r.log.Warn("a PeerPod cannot be removed", "namespace", pp.Namespace, "pod", claims.PodName(pp), "sandbox", pp.Spec.SandboxID, "instance", pp.Spec.InstanceID, "provider", pp.Spec.CloudProvider, "error", err)
	return reconcile.Result{RequeueAfter: operatorPause}, nil
}

// missingProvider is an error of the controller's own configuration.
type missingProvider struct{ error }

func (e missingProvider) Unwrap() error { return e.error }

// Hint implements claims.Hinter.
func (e missingProvider) Hint() string {
	return "set what the message names in ConfigMap " + ConfigMapName + " or Secret " + SecretName + "; it is read again at once"
}

// Reason implements claims.Reasoner.
func (e missingProvider) Reason() string { return claims.ReasonProviderMissing }

// refuseCluster refuses to touch instances of another cluster.
func (r *Reconciler) refuseCluster(ctx context.Context, pp *v1alpha1.PeerPod) (reconcile.Result, error) {
	note := fmt.Sprintf("the instance is tagged for cluster %q and this is %q: remove it there, then take the finalizer %s off, or set CLUSTER_ID in ConfigMap %s back",
		pp.Spec.ClusterID, r.options.Cluster, claims.Finalizer, ConfigMapName)
	r.events.warn(pp, claims.ReasonForeignCluster, "Delete", note)
	_, err := r.claims.Update(ctx, pp, claims.Deleting(claims.ReasonForeignCluster, note))
	return reconcile.Result{RequeueAfter: operatorPause}, err
}
