// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// InfraPool is a kind of machine pool infrastructure.
type InfraPool interface {
	object
	ContractPool() (*infrav1.PoolSpec, *infrav1.PoolStatus)
}

// PoolReconciler reconciles one kind of machine pool infrastructure. A pool
// makes nothing outside itself: it has one object of a kind of machine for each
// replica, of which core makes a Machine.
type PoolReconciler struct {
	Base
	// New returns an empty object of the kind.
	New func() InfraPool
	// NewMachine returns the machine of a pool's template, without metadata, and
	// NewMachines an empty list of that kind, MachineKind.
	NewMachine  func(InfraPool) InfraMachine
	NewMachines func() client.ObjectList
	MachineKind schema.GroupVersionKind
	// Finalizer of the kind.
	Finalizer string
	// Live reads objects; it must not be a cache.
	Live client.Reader
}

type poolRun struct {
	*PoolReconciler
	*patcher[InfraPool]
	owner    *clusterv1.MachinePool
	cluster  *clusterv1.Cluster
	machines []poolMachine
	// strays are the names of machines that are gone while their Machines are
	// not.
	strays map[string]bool
}

// Reconcile implements reconcile.Reconciler.
func (r *PoolReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	found, err := read(ctx, &r.Base, request.NamespacedName, r.New())
	if found == nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	run := &poolRun{PoolReconciler: r, patcher: found}
	return r.ignoreExpected(run.reconcile(ctx))
}

func (p *poolRun) reconcile(ctx context.Context) (reconcile.Result, error) {
	if isMoved(p.desired) {
		return reconcile.Result{}, nil
	}
	if err := p.owners(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if paused(p.cluster, p.desired) {
		return reconcile.Result{}, p.pause(ctx)
	}
	var err error
	if p.machines, err = p.list(ctx); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case !p.desired.GetDeletionTimestamp().IsZero():
		return p.delete(ctx)
	case p.owner == nil || p.cluster == nil:
		return reconcile.Result{}, nil // an event tells when they are there
	}
	return p.ensure(ctx)
}

// owners fills in MachinePool and Cluster as far as they are there.
func (p *poolRun) owners(ctx context.Context) (err error) {
	name := p.desired.GetLabels()[clusterv1.ClusterNameLabel]
	if p.owner, err = ownerPool(ctx, p.Client, p.desired); err != nil {
		return err
	}
	if p.owner != nil {
		name = p.owner.Spec.ClusterName
	}
	p.cluster, err = clusterNamed(ctx, p.Client, p.desired.GetNamespace(), name)
	return err
}

func ownerPool(ctx context.Context, c client.Reader, o client.Object) (*clusterv1.MachinePool, error) {
	for _, owner := range o.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil || gv.Group != clusterv1.GroupVersion.Group || owner.Kind != "MachinePool" {
			continue
		}
		pool := &clusterv1.MachinePool{}
		err = c.Get(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}, pool)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read MachinePool %s: %w", owner.Name, err)
		}
		return pool, nil
	}
	return nil, nil
}

func (p *poolRun) ensure(ctx context.Context) (reconcile.Result, error) {
	addFinalizer(p.desired, p.Finalizer)
	annotate(p.desired, infrav1.KeyAnnotation, keyOf(p.desired))
	if err := p.saveIdentity(ctx); err != nil {
		return reconcile.Result{}, err
	}
	setLife(p.desired)
	reason, message, err := p.work(ctx)
	if err != nil {
		return reconcile.Result{}, p.failed(ctx, err)
	}
	p.report(reason, message)
	p.clearWarnings(p.desired)
	return reconcile.Result{}, saveAndReport(ctx, p.patcher, p.Base)
}

// work reconciles the pool's machines, and returns what is still missing.
func (p *poolRun) work(ctx context.Context) (reason, message string, err error) {
	if err := p.adopt(ctx); err != nil {
		return "", "", err
	}
	if err := p.collectStrays(ctx); err != nil {
		return "", "", err
	}
	return p.converge(ctx)
}

// ReasonRequestRefused: the API server has refused what a pool asked of it, such as
// a machine beyond a ResourceQuota or against a policy.
const ReasonRequestRefused = "RequestRefused"

// failed records in the object what the API server has refused. Errors that the
// next reconciliation resolves are not reported.
func (p *poolRun) failed(ctx context.Context, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || errors.Is(err, errStale) || ctx.Err() != nil {
		return err
	}
	setStates(p.desired, "", ReasonRequestRefused, err.Error())
	summarize(p.desired, ProvisionedCondition, HealthyCondition)
	return errors.Join(err, saveAndReport(ctx, p.patcher, p.Base))
}

func (p *poolRun) report(reason, message string) {
	spec, status := p.desired.ContractPool()
	status.InfrastructureMachineKind = p.MachineKind.Kind
	status.Replicas, status.Instances, spec.ProviderIDList = 0, nil, nil
	for _, m := range p.machines {
		machineSpec, machineStatus := m.infra.ContractMachine()
		if !m.deleting() {
			status.Replicas++
		}
		if machineSpec.ProviderID != "" {
			spec.ProviderIDList = append(spec.ProviderIDList, machineSpec.ProviderID)
		}
		status.Instances = append(status.Instances, infrav1.PoolInstance{
			InstanceName: m.infra.GetName(), ProviderID: machineSpec.ProviderID,
			Ready: machineStatus.Ready, Addresses: machineStatus.Addresses, Version: p.versionOf(m),
		})
	}
	if reason == "" {
		setProvisioned(p.desired)
	}
	setStates(p.desired, "", reason, message)
	summarize(p.desired, ProvisionedCondition, HealthyCondition)
}

func (p *poolRun) delete(ctx context.Context) (reconcile.Result, error) {
	if !hasFinalizer(p.desired, p.Finalizer) {
		return reconcile.Result{}, nil
	}
	if len(p.machines) == 0 {
		return reconcile.Result{}, release(ctx, p.patcher, p.Finalizer)
	}
	for _, m := range p.machines {
		if err := p.remove(ctx, m); err != nil {
			return reconcile.Result{}, err
		}
	}
	setDeleting(p.desired, ReasonWaitingForMachines, fmt.Sprintf("%d machines of it are still there", len(p.machines)))
	return reconcile.Result{RequeueAfter: p.Poll}, p.save(ctx)
}

// Setup adds the reconciler to the manager; list is an empty one of the kind,
// machine an empty object of the kind of its machines.
func (r *PoolReconciler) Setup(mgr manager.Manager, list client.ObjectList, machine client.Object, w Watching) error {
	r.Complete()
	b, gvk, err := r.inClusters(mgr, r.New(), list, w)
	if err != nil {
		return err
	}
	return complete(b.
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(ofMachinePool(gvk.GroupKind())), builder.WithPredicates(specChanges())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofPoolMember(gvk.GroupKind())), builder.WithPredicates(comesOrGoes())).
		Watches(machine, handler.EnqueueRequestsFromMapFunc(ofPoolMachine(gvk))), r, gvk)
}

// ofMachinePool returns the infrastructure that a MachinePool names.
func ofMachinePool(kind schema.GroupKind) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		pool, ok := o.(*clusterv1.MachinePool)
		if !ok || pool.Spec.Template.Spec.InfrastructureRef.GroupKind() != kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pool.Namespace, Name: pool.Spec.Template.Spec.InfrastructureRef.Name}}}
	}
}

// ofPoolMember returns the infrastructure of the pool that a Machine is of.
func (r *PoolReconciler) ofPoolMember(kind schema.GroupKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		pool, err := ownerPool(ctx, r.Client, o)
		if err != nil || pool == nil {
			return nil // lost labels are restored when something else happens
		}
		return ofMachinePool(kind)(ctx, pool)
	}
}

// ofPoolMachine returns the infrastructure of the pool that a machine is of.
func ofPoolMachine(kind schema.GroupVersionKind) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		name := poolOf(o, kind)
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
	}
}

// comesOrGoes lets only creations and deletions pass.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}
