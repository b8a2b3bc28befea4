// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
)

// finalizer keeps a CloudControllerManager until the objects applied for it are gone.
const finalizer = "ccm.outrigger.dev/operands"

// Reasons of a CloudControllerManager's conditions.
const (
	reasonAsExpected = "AsExpected"
	reasonSyncing    = "SyncingResources"
	reasonFailed     = "SyncingFailed"
	reasonStalled    = "RolloutStalled"
	reasonIncomplete = "InputIncomplete"
)

// ccmReconciler deploys the cloud controller manager of a CloudControllerManager.
type ccmReconciler struct {
	*operator
	servers *servers
	now     func() time.Time
	log     *slog.Logger
	// memories are by the name of the CloudControllerManager. One is reconciled at a time.
	memories map[string]*memory
}

// memory is what is known of a CloudControllerManager from former passes.
type memory struct {
	window failure.Window
	// deployer remembers its Events and conflicts with other managers.
	deployer *Deployer
}

// pass is the result of one reconciliation of a CloudControllerManager.
type pass struct {
	settled bool
	// warning is what somebody should correct although nothing has failed.
	warning string
	// waits says what is not rolled out yet, and why.
	waits string
	// stalled is the error of a rollout that was given up, once the last good one is
	// deployed again.
	stalled error
	// again is the time after which to reconcile without an event; 0 means never.
	again time.Duration
}

// Reconcile deploys what a CloudControllerManager asks for and reports the result in
// its status.
func (r *ccmReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var c ccmv1alpha1.CloudControllerManager
	if err := r.client.Get(ctx, req.NamespacedName, &c); err != nil {
		delete(r.memories, req.Name)
		r.notes.absent.Delete(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if c.DeletionTimestamp != nil {
		return reconcile.Result{}, r.removeAndReport(ctx, &c)
	}
	if !controllerutil.ContainsFinalizer(&c, finalizer) {
		was := c.DeepCopy()
		controllerutil.AddFinalizer(&c, finalizer)
		return reconcile.Result{}, r.client.Patch(ctx, &c, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	}
	was := c.DeepCopy()
	p, err := r.sync(ctx, &c)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		if again, counts := r.memory(c.Name).window.Conflict(r.now()); !counts {
			return reconcile.Result{RequeueAfter: again}, nil
		}
	}
	counts := r.judge(&c, p, err)
	if failure.IsTerminal(err) {
		r.log.Error("not tried again until something changes", "ccm", c.Name, "error", err)
		err = nil
	}
	err = errors.Join(err, r.writeStatus(ctx, was, &c))
	if errors.Is(err, errNotAlone) {
		return reconcile.Result{}, err // the manager that is rolled out reports the cluster's status
	}
	return reconcile.Result{RequeueAfter: p.again}, errors.Join(err, r.mirror(ctx, &c, counts))
}

func (r *ccmReconciler) writeStatus(ctx context.Context, was, c *ccmv1alpha1.CloudControllerManager) error {
	if equality.Semantic.DeepEqual(was.Status, c.Status) {
		return nil
	}
	return r.client.Status().Patch(ctx, c, client.MergeFrom(was))
}

// removeAndReport calls remove and reports an error in the status, for the user who
// waits for the deletion.
func (r *ccmReconciler) removeAndReport(ctx context.Context, c *ccmv1alpha1.CloudControllerManager) error {
	was := c.DeepCopy()
	err := r.remove(ctx, c)
	if err == nil || apierrors.IsConflict(err) {
		return err
	}
	c = was.DeepCopy()
	r.judge(c, pass{}, err)
	return errors.Join(err, r.writeStatus(ctx, was, c))
}

// remove deletes the objects that were applied, and then removes the finalizer.
func (r *ccmReconciler) remove(ctx context.Context, c *ccmv1alpha1.CloudControllerManager) error {
	if !controllerutil.ContainsFinalizer(c, finalizer) {
		return nil
	}
	d := r.memory(c.Name).deployer
	if _, err := d.Sync(ctx, nil); err != nil {
		return fmt.Errorf("remove what belongs to CloudControllerManager %s: %w", c.Name, err)
	}
	r.notes.removed.Store(c.UID, true)
	// The policy has to be removed here: after the object, the user may remove the
	// operator.
	if err := errors.Join(d.Forget(ctx), r.forgetKept(ctx, c.Name), r.unguard(ctx)); err != nil {
		return err
	}
	was := c.DeepCopy()
	controllerutil.RemoveFinalizer(c, finalizer)
	return client.IgnoreNotFound(r.client.Patch(ctx, c, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})))
}

func (r *ccmReconciler) sync(ctx context.Context, c *ccmv1alpha1.CloudControllerManager) (pass, error) {
	if err := r.checkAlone(ctx, c); err != nil {
		return pass{}, err
	}
	b, err := r.bundle(ctx, c)
	if err != nil {
		return pass{}, r.noteMissing(c, err)
	}
	lowest, again, err := r.servers.lowest(ctx, c.Status.KubernetesVersion)
	if err != nil {
		return pass{}, err
	}
	// It is set even if nothing fits: otherwise the version would seem new in each pass.
	c.Status.KubernetesVersion = lowest
	wanted, err := choose(c, lowest)
	if err != nil {
		return pass{again: again}, failure.Terminal(err)
	}
	p, err := r.deploy(ctx, c, b, wanted)
	if again > 0 && (p.again == 0 || again < p.again) {
		p.again = again
	}
	return p, err
}

// errNotAlone means that another object decides what runs. Two would take ConfigMaps
// and accounts from each other for ever.
var errNotAlone = errors.New("it is not rolled out")

// checkAlone returns an error for all CloudControllerManagers but the oldest, and for
// each one if OpenShift's platform decides what runs.
func (r *ccmReconciler) checkAlone(ctx context.Context, c *ccmv1alpha1.CloudControllerManager) error {
	all, err := r.managers(ctx)
	if err != nil {
		return err
	}
	if len(all) > 0 && byAge(all[0], *c) < 0 {
		return fmt.Errorf("%w: a cluster has one CloudControllerManager, and %s is older: delete one of them", errNotAlone, all[0].Name)
	}
	b, err := r.platform(ctx)
	if b != nil {
		return fmt.Errorf("%w: the cluster's Infrastructure says what runs, for platform %s: delete this one", errNotAlone, b.Platform)
	}
	return err
}

func byAge(a, b ccmv1alpha1.CloudControllerManager) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// choose returns the version and the images for API servers of that version.
func choose(c *ccmv1alpha1.CloudControllerManager, lowest string) (ccmv1alpha1.Rollout, error) {
	minor, err := parseMinor(lowest)
	if err != nil {
		return ccmv1alpha1.Rollout{}, err
	}
	// The patch version is left out. During an upgrade it differs between API servers,
	// and a stalled rollout must not be repeated because another one answered.
	wanted := ccmv1alpha1.Rollout{Generation: c.Generation, KubernetesVersion: minor.String(), Images: maps.Clone(c.Spec.Images)}
	if len(c.Spec.Versions) == 0 {
		return wanted, nil
	}
	rule, err := chooseRule(c.Spec.Versions, minor)
	if err != nil {
		return wanted, err
	}
	wanted.Version, wanted.Images = rule.Version, maps.Clone(rule.Images)
	maps.Copy(wanted.Images, c.Spec.Images)
	return wanted, nil
}

// noteMissing records a missing ConfigMap, if err is about one, for the watchdog to
// report on Nodes that wait. It does so until the manager was rolled out once. It
// returns err.
func (r *ccmReconciler) noteMissing(c *ccmv1alpha1.CloudControllerManager, err error) error {
	var a absent
	switch {
	case c.Status.LastGood != nil:
	case errors.As(err, &a):
		r.notes.absent.Store(c.Name, []string{fmt.Sprintf("ConfigMap %s, wanted by %s", a.key, a.field)})
	default:
		r.notes.absent.Delete(c.Name)
	}
	return err
}

// judge sets the conditions by the result of a pass. It reports whether there is a
// failure that counts: it has lasted, or retrying does not help.
func (r *ccmReconciler) judge(c *ccmv1alpha1.CloudControllerManager, p pass, err error) (counts bool) {
	c.Status.ObservedGeneration = c.Generation
	w := &r.memory(c.Name).window
	switch {
	case err != nil:
		counts = failure.IsTerminal(err) || w.Observe(r.now())
		if counts {
			set(c, ccmv1alpha1.DegradedCondition, true, reasonFailed, err.Error())
		}
		set(c, ccmv1alpha1.WarningCondition, true, reasonFailed, err.Error())
		return counts
	case p.stalled != nil:
		w.Clear()
		set(c, ccmv1alpha1.DegradedCondition, true, reasonStalled, p.stalled.Error())
		counts = true
	default:
		w.Clear()
		set(c, ccmv1alpha1.DegradedCondition, false, reasonFailed, "")
	}
	set(c, ccmv1alpha1.WarningCondition, p.warning != "", reasonIncomplete, p.warning)
	set(c, ccmv1alpha1.ProgressingCondition, !p.settled, reasonSyncing, p.waits)
	if p.settled {
		set(c, ccmv1alpha1.AvailableCondition, true, reasonSyncing, "")
	} else if apimeta.FindStatusCondition(c.Status.Conditions, ccmv1alpha1.AvailableCondition) == nil {
		set(c, ccmv1alpha1.AvailableCondition, false, reasonSyncing, "it has not been rolled out yet")
	}
	return counts
}

// set sets a condition. The reason is for one that is not as it should be.
func set(c *ccmv1alpha1.CloudControllerManager, kind string, holds bool, reason, message string) {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	if holds == (kind == ccmv1alpha1.AvailableCondition) {
		reason = reasonAsExpected
	}
	apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, ObservedGeneration: c.Generation,
		Message: controllers.Clip(message, 32000), // has at most 32768 bytes
	})
}

func (r *ccmReconciler) memory(name string) *memory {
	if r.memories[name] == nil {
		r.memories[name] = &memory{window: failure.Window{Threshold: r.o.DegradedAfter}, deployer: r.deployer(inventoryPrefix + name)}
	}
	return r.memories[name]
}

// mirror says in the ClusterOperator, where there is one, how a CloudControllerManager
// is.
func (r *ccmReconciler) mirror(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, failed bool) error {
	if r.status == nil {
		return nil
	}
	all := c.Status.Conditions
	var warning metav1.Condition // empty, it takes away what the ClusterOperator warned of before
	if apimeta.IsStatusConditionTrue(all, ccmv1alpha1.WarningCondition) {
		warning = *apimeta.FindStatusCondition(all, ccmv1alpha1.WarningCondition)
	}
	if err := r.status.Warn(ctx, warning.Reason, warning.Message); err != nil {
		return err
	}
	switch d := apimeta.FindStatusCondition(all, ccmv1alpha1.DegradedCondition); {
	case failed && d != nil:
		return r.status.Degraded(ctx, errors.New(d.Message))
	case apimeta.IsStatusConditionTrue(all, ccmv1alpha1.ProgressingCondition):
		return r.status.Progressing(ctx)
	case apimeta.IsStatusConditionTrue(all, ccmv1alpha1.AvailableCondition):
		return r.status.Available(ctx, nil)
	}
	return nil
}
