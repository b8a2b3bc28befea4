// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// MachineReconciler reconciles one kind of machine infrastructure.
type MachineReconciler struct {
	Base
	// New returns an empty object of the kind, and NewCluster one of the kind
	// of cluster that it belongs to, whose name is ClusterKind.
	New         func() InfraMachine
	NewCluster  func() InfraCluster
	ClusterKind schema.GroupKind
	// NewList returns an empty list of the kind. If it is nil, copies of an object are
	// not detected.
	NewList func() client.ObjectList
	// Finalizer of the kind.
	Finalizer string
	Backend   MachineBackend
	// Live reads bootstrap Secrets, and an object again before a machine is made for
	// it. It must not be a cache.
	Live client.Reader
	// MaxBootstrap limits bootstrap data, in bytes. The default is 1 MiB, the limit of
	// a Secret.
	MaxBootstrap int
}

// Forgetter is a [MachineBackend] that keeps something in memory for objects.
type Forgetter interface {
	// Forget is called when the object is gone. It MUST NOT remove resources: the
	// object may have been moved to another management cluster.
	Forget(types.NamespacedName)
}

const maxSecret = 1 << 20

// Complete fills in defaults; Setup does it too.
func (r *MachineReconciler) Complete() {
	r.Base.Complete()
	r.warner, _ = r.Backend.(Warner)
	if r.MaxBootstrap == 0 {
		r.MaxBootstrap = maxSecret
	}
}

type machineRun struct {
	*MachineReconciler
	*patcher[InfraMachine]
	scope MachineScope
}

// Reconcile implements reconcile.Reconciler.
func (r *MachineReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	found, err := read(ctx, &r.Base, request.NamespacedName, r.New())
	if f, ok := r.Backend.(Forgetter); ok && apierrors.IsNotFound(err) {
		f.Forget(request.NamespacedName)
	}
	if found == nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	run := &machineRun{MachineReconciler: r, patcher: found}
	return r.ignoreExpected(run.reconcile(ctx))
}

func (m *machineRun) reconcile(ctx context.Context) (reconcile.Result, error) {
	if isMoved(m.desired) {
		return reconcile.Result{}, nil
	}
	if err := m.owners(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if paused(m.scope.Cluster, m.desired) {
		return reconcile.Result{}, m.pause(ctx)
	}
	if isCopy, result, err := asCopy(ctx, m.patcher, m.Base, m.NewList, m.Finalizer); isCopy || err != nil {
		return result, err
	}
	if !m.desired.GetDeletionTimestamp().IsZero() {
		return m.delete(ctx)
	}
	if m.scope.Machine == nil || m.scope.Cluster == nil {
		log.FromContext(ctx).V(1).Info("waiting for the Machine that owns this and its Cluster")
		return reconcile.Result{}, nil
	}
	return m.ensure(ctx)
}

// owners fills in the Machine and the Cluster, if they exist.
func (m *machineRun) owners(ctx context.Context) error {
	infra := m.desired
	m.scope = MachineScope{Infra: infra, Key: keyOf(infra), ClusterKey: infra.GetAnnotations()[infrav1.ClusterKeyAnnotation], Began: beganOf(infra)}
	machine, err := util.GetOwnerMachine(ctx, m.Client, metav1.ObjectMeta{Namespace: infra.GetNamespace(), OwnerReferences: infra.GetOwnerReferences()})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look up the Machine that owns %s: %w", infra.GetName(), err)
	}
	name := infra.GetLabels()[clusterv1.ClusterNameLabel]
	if machine != nil && err == nil {
		if err := asPoolMember(ctx, m.Client, machine); err != nil {
			return err
		}
		m.scope.Machine = machine
		m.scope.ControlPlane = util.IsControlPlaneMachine(machine)
		m.scope.FailureDomain = machine.Spec.FailureDomain
		name = machine.Spec.ClusterName
	}
	m.scope.Cluster, err = clusterNamed(ctx, m.Client, infra.GetNamespace(), name)
	return err
}

func (m *machineRun) ensure(ctx context.Context) (reconcile.Result, error) {
	addFinalizer(m.desired, m.Finalizer)
	annotate(m.desired, infrav1.KeyAnnotation, m.scope.Key)
	wait, err := m.prepare(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if wait == nil {
		m.begin()
	}
	if err := m.identify(ctx, wait == nil); err != nil {
		return reconcile.Result{}, err
	}
	if wait == nil {
		if wait, err = m.lateDeletion(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	setLife(m.desired)
	if wait != nil {
		return m.await(ctx, wait)
	}
	m.scope.Began = beganOf(m.desired)
	state, err := m.Backend.EnsureMachine(ctx, &m.scope)
	if err != nil {
		return m.failed(ctx, err)
	}
	m.apply(state)
	m.clearWarnings(m.desired)
	return reconcile.Result{RequeueAfter: state.RequeueAfter}, saveAndReport(ctx, m.patcher, m.Base)
}

// identify writes the identity. Nothing may be created from an outdated object:
// either the write proves that it is current, or the object is read again
// without the cache.
func (m *machineRun) identify(ctx context.Context, makes bool) error {
	version := m.stored.GetResourceVersion()
	if err := m.saveIdentity(ctx); err != nil {
		return err
	}
	spec, _ := m.desired.ContractMachine()
	if !makes || spec.ProviderID != "" || m.stored.GetResourceVersion() != version {
		return nil
	}
	live := m.New()
	if err := m.Live.Get(ctx, client.ObjectKeyFromObject(m.desired), live); err != nil {
		return err
	}
	if live.GetResourceVersion() != version {
		return errStale
	}
	return nil
}

// lateDeletion checks without the cache whether the cluster's infrastructure is
// being deleted. BeganAnnotation has been stored before: either this check sees the
// deletion, or the deletion sees the machine and waits for it.
func (m *machineRun) lateDeletion(ctx context.Context) (*waiting, error) {
	if spec, _ := m.desired.ContractMachine(); spec.ProviderID != "" || m.scope.InfraCluster == nil {
		return nil, nil
	}
	infra := m.NewCluster()
	err := m.Live.Get(ctx, client.ObjectKeyFromObject(m.scope.InfraCluster), infra)
	if apierrors.IsNotFound(err) {
		return nil, errStale
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", m.ClusterKind.Kind, m.scope.InfraCluster.GetName(), err)
	}
	return m.clusterDeleting(infra), nil
}

// begin annotates the machine: from now on it may have resources.
func (m *machineRun) begin() {
	if m.scope.ClusterKey == "" {
		m.scope.ClusterKey = string(m.scope.Cluster.UID) // for infrastructure that is not ours
		if m.scope.InfraCluster != nil && !external(m.scope.InfraCluster) {
			m.scope.ClusterKey = keyOf(m.scope.InfraCluster)
		}
		annotate(m.desired, infrav1.ClusterKeyAnnotation, m.scope.ClusterKey)
	}
	if p, ok := m.Backend.(Placer); ok {
		annotate(m.desired, infrav1.ProviderAnnotation, p.Place(m.scope.InfraCluster))
	}
	annotate(m.desired, infrav1.BeganAnnotation, m.Now().UTC().Format(time.RFC3339))
}

// prepare fills in what the backend needs, and returns what is missing.
func (m *machineRun) prepare(ctx context.Context) (*waiting, error) {
	if err := m.findInfraCluster(ctx); err != nil {
		return nil, err
	}
	if spec, _ := m.desired.ContractMachine(); spec.ProviderID != "" {
		return nil, nil // it exists: no bootstrap data is needed
	}
	if wait := m.infrastructureReady(); wait != nil {
		return wait, nil
	}
	data, format, wait, err := m.bootstrapData(ctx, m.scope.Machine)
	m.scope.Bootstrap, m.scope.Format = data, format
	return wait, err
}

func (m *machineRun) findInfraCluster(ctx context.Context) error {
	ref := m.scope.Cluster.Spec.InfrastructureRef
	if ref.GroupKind() != m.ClusterKind {
		return nil
	}
	infra := m.NewCluster()
	err := m.Client.Get(ctx, types.NamespacedName{Namespace: m.desired.GetNamespace(), Name: ref.Name}, infra)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	m.scope.InfraCluster = infra
	return nil
}

// infrastructureReady returns what the cluster lacks before a machine can be made in
// it; nil if nothing.
func (m *machineRun) infrastructureReady() *waiting {
	cluster := m.scope.Cluster
	if !infrastructureThere(cluster) {
		return &waiting{reason: clusterv1.WaitingForClusterInfrastructureReadyReason,
			message: fmt.Sprintf("the infrastructure of Cluster %s is not provisioned yet", cluster.Name)}
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return &waiting{reason: clusterv1.DeletingReason, message: fmt.Sprintf("Cluster %s is being deleted: no machine is made for it any more", cluster.Name)}
	}
	if !m.scope.Machine.DeletionTimestamp.IsZero() {
		return &waiting{reason: clusterv1.DeletingReason, message: fmt.Sprintf("Machine %s is being deleted: nothing is made for it any more", m.scope.Machine.Name)}
	}
	if wait := m.clusterDeleting(m.scope.InfraCluster); wait != nil {
		return wait
	}
	if m.scope.InfraCluster == nil && cluster.Spec.InfrastructureRef.GroupKind() == m.ClusterKind {
		return &waiting{reason: clusterv1.WaitingForClusterInfrastructureReadyReason, poll: true,
			message: fmt.Sprintf("there is no %s %s, which Cluster %s names", m.ClusterKind.Kind, cluster.Spec.InfrastructureRef.Name, cluster.Name)}
	}
	return m.knownFailureDomain()
}

// clusterDeleting returns a reason to wait if the cluster's infrastructure is being
// deleted: a machine that is made now would block that.
func (m *machineRun) clusterDeleting(infra InfraCluster) *waiting {
	if infra == nil || infra.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return &waiting{reason: clusterv1.DeletingReason, poll: true,
		message: fmt.Sprintf("%s %s is being deleted: no machine is made in it any more", m.ClusterKind.Kind, infra.GetName())}
}

// knownFailureDomain returns a reason to wait if the cluster does not have the
// requested failure domain: a machine is never made in another one.
func (m *machineRun) knownFailureDomain() *waiting {
	if m.scope.FailureDomain == "" || m.scope.InfraCluster == nil || HasFailureDomain(m.scope.InfraCluster, m.scope.FailureDomain) {
		return nil
	}
	return &waiting{reason: ReasonFailureDomainUnknown, poll: true,
		message: fmt.Sprintf("the Machine's failure domain %q is none of %s %s: correct it, or add the domain there", m.scope.FailureDomain, m.ClusterKind.Kind, m.scope.InfraCluster.GetName())}
}

// HasFailureDomain reports whether a cluster has a failure domain of that name.
func HasFailureDomain(infra InfraCluster, name string) bool {
	_, status := infra.ContractCluster()
	return slices.ContainsFunc(status.FailureDomains, func(d clusterv1.FailureDomain) bool { return d.Name == name })
}

func (m *machineRun) delete(ctx context.Context) (reconcile.Result, error) {
	if !hasFinalizer(m.desired, m.Finalizer) {
		return reconcile.Result{}, nil
	}
	if m.scope.Cluster != nil {
		if err := m.findInfraCluster(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	gone, err := m.Backend.DeleteMachine(ctx, &m.scope)
	if gone && err == nil {
		return reconcile.Result{}, release(ctx, m.patcher, m.Finalizer)
	}
	return recordDeleting(ctx, m.patcher, m.Base, err)
}
