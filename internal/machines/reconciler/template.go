// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// InfraTemplate is a kind that machines are made from.
type InfraTemplate interface {
	client.Object
	ContractTemplate() *infrav1.MachineTemplateStatus
}

// Sizer is a [MachineBackend] that knows beforehand how large a machine will be,
// which the cluster autoscaler asks for where there is none yet.
type Sizer interface {
	// MachineSize returns what a machine of a template will have at least, and
	// nothing of what is not known. It makes nothing. The cluster's infrastructure is
	// nil of a template that no Cluster owns, such as one of a ClusterClass.
	MachineSize(context.Context, InfraTemplate, InfraCluster) (infrav1.MachineTemplateStatus, error)
}

// TemplateReconciler writes into the templates of one kind how large their
// machines will be.
type TemplateReconciler struct {
	Base
	// New returns an empty object of the kind.
	New   func() InfraTemplate
	Sizer Sizer
	// NewCluster returns an empty object of the kind of cluster that the machines belong
	// to, whose name is ClusterKind. Without it the clusters are not asked for.
	NewCluster  func() InfraCluster
	ClusterKind schema.GroupKind
}

// Complete fills in defaults; Setup does it too.
func (r *TemplateReconciler) Complete() {
	r.Base.Complete()
	r.warner, _ = r.Sizer.(Warner)
}

// Reconcile implements reconcile.Reconciler.
func (r *TemplateReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	template := r.New()
	if err := r.Client.Get(ctx, request.NamespacedName, template); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if r.foreign(template) || isMoved(template) || !template.GetDeletionTimestamp().IsZero() {
		return reconcile.Result{}, nil
	}
	cluster, err := clusterNamed(ctx, r.Client, template.GetNamespace(), ownerCluster(template))
	if err != nil || paused(cluster, template) {
		return reconcile.Result{}, err // the end of a Cluster's pause is seen at the next resync
	}
	infra, err := r.infraCluster(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	size, err := r.Sizer.MachineSize(ctx, template, infra)
	if err != nil {
		if r.warns(reasonOf(err)) {
			r.warn(template, reasonOf(err), messageOf(err))
		}
		return afterError(err)
	}
	r.Events.Clear(template)
	return r.ignoreExpected(reconcile.Result{}, r.write(ctx, template, size))
}

// write keeps values of others for what is not known.
func (r *TemplateReconciler) write(ctx context.Context, template InfraTemplate, size infrav1.MachineTemplateStatus) error {
	before := template.DeepCopyObject().(InfraTemplate)
	status := template.ContractTemplate()
	if len(size.Capacity) > 0 {
		status.Capacity = size.Capacity
	}
	if size.NodeInfo != (infrav1.NodeInfo{}) {
		status.NodeInfo = size.NodeInfo
	}
	if equality.Semantic.DeepEqual(before.ContractTemplate(), status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, template, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the status of %T: %w", template, err)
	}
	return nil
}

func (r *TemplateReconciler) infraCluster(ctx context.Context, cluster *clusterv1.Cluster) (InfraCluster, error) {
	if cluster == nil || r.NewCluster == nil || cluster.Spec.InfrastructureRef.GroupKind() != r.ClusterKind {
		return nil, nil
	}
	infra := r.NewCluster()
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.InfrastructureRef.Name}, infra)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", r.ClusterKind.Kind, cluster.Spec.InfrastructureRef.Name, err)
	}
	return infra, nil
}

// Setup adds the reconciler to the manager. Every object is reconciled again
// after the manager's sync period, since a catalogue may change.
func (r *TemplateReconciler) Setup(mgr manager.Manager, w Watching) error {
	r.Complete()
	b, gvk, err := r.controller(mgr, r.New(), w, templateChanges())
	if err != nil {
		return err
	}
	return complete(b, r, gvk)
}

// templateChanges leaves out what was written into the status.
func templateChanges() predicate.Predicate {
	// Core makes a Cluster the owner a moment after creating the template; periodic resyncs pass.
	others := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return ownerCluster(e.ObjectOld) != ownerCluster(e.ObjectNew) || e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	}}
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, others)
}
