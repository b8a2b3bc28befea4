// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/provider"
)

// AdoptKey is the key of the ConfigMap that lists, with commas, instances without tags that may be deleted.
const AdoptKey = "ADOPT_INSTANCES"

// foreignMade reports whether a PeerPod is of Confidential Containers' adaptor: it names an instance and no sandbox.
func foreignMade(pp *v1alpha1.PeerPod) bool {
	return pp.Spec.SandboxID == "" && pp.Spec.InstanceID != "" && pp.Spec.PoolVM == ""
}

// removeForeignMade removes such a PeerPod in deletion. Its instance has no tags, and whoever may write PeerPods could name
// any. So it is deleted only if the ConfigMap, which administrators write, lists it; until then the PeerPod stays, as it is
// the only record of the instance.
func (r *Reconciler) removeForeignMade(ctx context.Context, pp *v1alpha1.PeerPod, c *cloud.Cloud) (reconcile.Result, error) {
	id := pp.Spec.InstanceID
	instance, err := r.look(ctx, c, id)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return reconcile.Result{}, r.removeFinalizer(ctx, pp)
	case err != nil:
		return r.failed(ctx, pp, err)
	case instance != nil && instance.Tags[provider.TagCluster] != "":
		return r.hold(ctx, pp, fmt.Sprintf("instance %s carries the tags of cluster %q, so this PeerPod is not its own: take the finalizer %s off",
			id, instance.Tags[provider.TagCluster], claims.Finalizer))
	case !r.mayAdopt(id):
		return r.hold(ctx, pp, fmt.Sprintf("instance %s has no tags that prove whose it is: add it to %s in ConfigMap %s to have it deleted, or delete it yourself and take the finalizer %s off",
			id, AdoptKey, ConfigMapName, claims.Finalizer))
	}
	if err := c.Delete(ctx, id); err != nil {
		return r.failed(ctx, pp, err)
	}
	r.metrics.deleted.WithLabelValues(c.Name, causePeerPod).Inc()
	r.log.Info("deleted an instance without tags, as the ConfigMap says", "namespace", pp.Namespace, "peerPod", pp.Name, "instance", id, "provider", c.Name)
	if c.CanGet() { // until the cloud says that it is gone
		return reconcile.Result{RequeueAfter: statusAfter}, nil
	}
	return reconcile.Result{}, r.removeFinalizer(ctx, pp)
}

// look returns the instance. If the provider cannot look it up, it is nil unless the list of this cluster's has it.
func (r *Reconciler) look(ctx context.Context, c *cloud.Cloud, id string) (*provider.Instance, error) {
	if c.CanGet() {
		return c.Get(ctx, id)
	}
	snapshot, _, _ := c.Latest()
	return snapshot.OfID(id), nil
}

func (r *Reconciler) mayAdopt(id string) bool {
	for one := range strings.SplitSeq(r.clouds.Setting(AdoptKey), ",") {
		if strings.TrimSpace(one) == id {
			return true
		}
	}
	return false
}

// hold keeps a PeerPod in deletion and says why.
func (r *Reconciler) hold(ctx context.Context, pp *v1alpha1.PeerPod, note string) (reconcile.Result, error) {
	r.events.warn(pp, claims.ReasonForeignInstance, "Delete", note)
	_, err := r.claims.Update(ctx, pp, claims.Deleting(claims.ReasonForeignInstance, note))
	return reconcile.Result{RequeueAfter: settingsRetry}, err
}
