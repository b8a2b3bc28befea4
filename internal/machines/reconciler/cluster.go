// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// ClusterReconciler reconciles one kind of cluster infrastructure.
type ClusterReconciler struct {
	Base
	// New returns an empty object of the kind, and NewMachines an empty list of
	// the kind of its machines.
	New         func() InfraCluster
	NewMachines func() client.ObjectList
	// NewList returns an empty list of the kind; without it copies of objects
	// are not told from them.
	NewList func() client.ObjectList
	// Finalizer of the kind.
	Finalizer string
	Backend   ClusterBackend
	// Live reads the machines before the rest of a cluster is removed. It must
	// not be a cache; by default it is Client.
	Live client.Reader
}

// Complete fills in defaults; Setup does it too.
func (r *ClusterReconciler) Complete() {
	r.Base.Complete()
	r.warner, _ = r.Backend.(Warner)
	if r.Live == nil {
		r.Live = r.Client
	}
}

type clusterRun struct {
	*ClusterReconciler
	*patcher[InfraCluster]
	scope ClusterScope
}

// Reconcile implements reconcile.Reconciler.
func (r *ClusterReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	found, err := read(ctx, &r.Base, request.NamespacedName, r.New())
	if found == nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	run := &clusterRun{ClusterReconciler: r, patcher: found}
	return r.ignoreExpected(run.reconcile(ctx))
}

func (c *clusterRun) reconcile(ctx context.Context) (reconcile.Result, error) {
	deleting := !c.desired.GetDeletionTimestamp().IsZero()
	// Externally managed infrastructure is left alone, unless it was ours
	// before.
	if isMoved(c.desired) || external(c.desired) && !(deleting && hasFinalizer(c.desired, c.Finalizer)) {
		return reconcile.Result{}, nil
	}
	c.scope = ClusterScope{Infra: c.desired, Key: keyOf(c.desired)}
	var err error
	name := ownerCluster(c.desired)
	if name == "" && deleting { // the reference may be lost, and the Cluster paused
		name = c.desired.GetLabels()[clusterv1.ClusterNameLabel]
	}
	if c.scope.Cluster, err = clusterNamed(ctx, c.Client, c.desired.GetNamespace(), name); err != nil {
		return reconcile.Result{}, err
	}
	if paused(c.scope.Cluster, c.desired) {
		return reconcile.Result{}, c.pause(ctx)
	}
	if is, result, err := asCopy(ctx, c.patcher, c.Base, c.NewList, c.Finalizer); is || err != nil {
		return result, err
	}
	if deleting {
		return c.delete(ctx)
	}
	if c.scope.Cluster == nil {
		log.FromContext(ctx).V(1).Info("waiting for the Cluster that owns this")
		return reconcile.Result{}, nil
	}
	return c.ensure(ctx)
}

// ownerCluster returns the name of the Cluster that owns an object; what is not
// owned yet has none.
func ownerCluster(o metav1.Object) string {
	for _, owner := range o.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && gv.Group == clusterv1.GroupVersion.Group && owner.Kind == "Cluster" {
			return owner.Name
		}
	}
	return ""
}

func (c *clusterRun) ensure(ctx context.Context) (reconcile.Result, error) {
	addFinalizer(c.desired, c.Finalizer)
	annotate(c.desired, infrav1.KeyAnnotation, c.scope.Key)
	if err := c.saveIdentity(ctx); err != nil {
		return reconcile.Result{}, err
	}
	setLife(c.desired)
	state, err := c.Backend.EnsureCluster(ctx, &c.scope)
	if err != nil {
		return c.failed(ctx, err)
	}
	c.apply(state)
	c.clearWarnings(c.desired)
	return reconcile.Result{RequeueAfter: state.RequeueAfter}, saveAndReport(ctx, c.patcher, c.Base)
}

// apply copies the backend's state into the object.
func (c *clusterRun) apply(state ClusterState) {
	spec, status := c.desired.ContractCluster()
	if spec.ControlPlaneEndpoint.IsZero() && state.Endpoint.IsValid() {
		spec.ControlPlaneEndpoint = state.Endpoint
	}
	if state.Provisioned && !spec.ControlPlaneEndpoint.IsValid() && !c.scope.Cluster.Spec.ControlPlaneEndpoint.IsValid() {
		state.Provisioned = false
		state.Reason, state.Message = ReasonWaitingForEndpoint, "nothing here provides an endpoint for the control plane: set spec.controlPlaneEndpoint, or that of the Cluster"
	}
	if state.Provisioned {
		setProvisioned(c.desired)
		if p, ok := c.Backend.(Placer); ok {
			annotate(c.desired, infrav1.ProviderAnnotation, p.Place(c.desired))
		}
	}
	status.FailureDomains = state.FailureDomains
	setStates(c.desired, "", state.Reason, state.Message)
	for _, own := range state.Conditions {
		setCondition(c.desired, own)
	}
	summarize(c.desired, ProvisionedCondition, HealthyCondition)
}

func (c *clusterRun) failed(ctx context.Context, err error) (reconcile.Result, error) {
	return recordFailure(ctx, c.patcher, &c.Base, err, ProvisionedCondition, HealthyCondition)
}

func (c *clusterRun) delete(ctx context.Context) (reconcile.Result, error) {
	if !hasFinalizer(c.desired, c.Finalizer) {
		return reconcile.Result{}, nil
	}
	n, err := c.machines(ctx, c.Client)
	if err == nil && n == 0 {
		n, err = c.machines(ctx, c.Live) // one may have begun a moment ago
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if n > 0 {
		setDeleting(c.desired, ReasonWaitingForMachines, fmt.Sprintf("%d machines of it are still there", n))
		return reconcile.Result{RequeueAfter: c.Poll}, c.save(ctx)
	}
	gone, err := c.Backend.DeleteCluster(ctx, &c.scope)
	if gone && err == nil {
		return reconcile.Result{}, release(ctx, c.patcher, c.Finalizer)
	}
	return recordDeleting(ctx, c.patcher, c.Base, err)
}

func (c *clusterRun) machines(ctx context.Context, from client.Reader) (n int, err error) {
	list := c.NewMachines()
	if err := from.List(ctx, list, client.InNamespace(c.desired.GetNamespace())); err != nil {
		return 0, fmt.Errorf("list the machines of %s: %w", c.desired.GetName(), err)
	}
	return n, apimeta.EachListItem(list, func(o runtime.Object) error {
		if o.(client.Object).GetAnnotations()[infrav1.ClusterKeyAnnotation] == c.scope.Key {
			n++
		}
		return nil
	})
}
