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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/versions"
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
	client client.Client
	o      *Options
	// newDeployer returns the deployer of the CloudControllerManager with that name.
	newDeployer func(name string) *Deployer
	inputs      *ccmInputs
	servers     *servers
	mirror      mirror
	notes       *notes
	// platform returns the bundle of OpenShift's platform; nil if there is none.
	platform func(context.Context) (*bundle.Bundle, error)
	// unguard removes the policy that guards deletions of Nodes unless it is still needed.
	unguard func(context.Context) error
	now     func() time.Time
	log     *slog.Logger

	mu      sync.Mutex
	windows map[string]*failure.Window
	// deployers are kept: they remember their Events and conflicts with other managers.
	deployers map[string]*Deployer
}

// pass is the result of one reconciliation of a CloudControllerManager.
type pass struct {
	settled bool
	moved   bool
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
		r.forget(req.Name)
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
		if again, counts := r.window(c.Name).Conflict(r.now()); !counts {
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
	return reconcile.Result{RequeueAfter: p.again}, errors.Join(err, r.mirror.report(ctx, &c, counts))
}

// writeStatus writes the status if it has changed.
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
	d := r.deployer(c.Name)
	if _, err := d.Sync(ctx, nil); err != nil {
		return fmt.Errorf("remove what belongs to CloudControllerManager %s: %w", c.Name, err)
	}
	r.notes.remove(c.UID)
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
	if err := limitsOf(c.Spec.NodeDeletions).Verify(); err != nil {
		return pass{}, failure.Terminal(fmt.Errorf("spec.nodeDeletions: %w", err))
	}
	b, err := r.inputs.bundle(ctx, c)
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
	var all ccmv1alpha1.CloudControllerManagerList
	if err := r.client.List(ctx, &all); err != nil {
		return err
	}
	for i := range all.Items {
		if other := &all.Items[i]; byAge(*other, *c) < 0 {
			return fmt.Errorf("%w: a cluster has one CloudControllerManager, and %s is older: delete one of them", errNotAlone, other.Name)
		}
	}
	b, err := r.platform(ctx)
	if err != nil {
		return err
	}
	if b != nil {
		return fmt.Errorf("%w: the cluster's Infrastructure says what runs, for platform %s: delete this one", errNotAlone, b.Platform)
	}
	return nil
}

func byAge(a, b ccmv1alpha1.CloudControllerManager) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// choose returns the version and the images for API servers of that version.
func choose(c *ccmv1alpha1.CloudControllerManager, lowest string) (ccmv1alpha1.Rollout, error) {
	minor, err := versions.ParseMinor(lowest)
	if err != nil {
		return ccmv1alpha1.Rollout{}, err
	}
	// The patch version is left out. During an upgrade it differs between API servers,
	// and a stalled rollout must not be repeated because another one answered.
	wanted := ccmv1alpha1.Rollout{Generation: c.Generation, KubernetesVersion: minor.String(), Images: maps.Clone(c.Spec.Images)}
	if len(c.Spec.Versions) == 0 {
		return wanted, nil
	}
	rules := make([]versions.Rule, len(c.Spec.Versions))
	for i, v := range c.Spec.Versions {
		rules[i] = versions.Rule{Kubernetes: v.Kubernetes, Version: v.Version, Images: v.Images}
	}
	rule, err := versions.Choose(rules, minor)
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
		r.notes.missing(c.Name, []string{fmt.Sprintf("ConfigMap %s, wanted by %s", a.key, a.field)})
	default:
		r.notes.missing(c.Name, nil)
	}
	return err
}

func references(all []apply.Ref) []ccmv1alpha1.ObjectReference {
	var refs []ccmv1alpha1.ObjectReference
	for _, a := range all {
		refs = append(refs, ccmv1alpha1.ObjectReference{Group: a.Group, Kind: a.Kind, Namespace: a.Namespace, Name: a.Name})
	}
	return refs
}

// judge sets the conditions by the result of a pass. It reports whether there is a
// failure that counts: it has lasted, or retrying does not help.
func (r *ccmReconciler) judge(c *ccmv1alpha1.CloudControllerManager, p pass, err error) (counts bool) {
	c.Status.ObservedGeneration = c.Generation
	w := r.window(c.Name)
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
		set(c, ccmv1alpha1.DegradedCondition, false, reasonAsExpected, "")
	}
	set(c, ccmv1alpha1.WarningCondition, p.warning != "", reasonOf(p.warning != "", reasonIncomplete), p.warning)
	set(c, ccmv1alpha1.ProgressingCondition, !p.settled, reasonOf(!p.settled, reasonSyncing), p.waits)
	if p.settled {
		set(c, ccmv1alpha1.AvailableCondition, true, reasonAsExpected, "")
	} else if apimeta.FindStatusCondition(c.Status.Conditions, ccmv1alpha1.AvailableCondition) == nil {
		set(c, ccmv1alpha1.AvailableCondition, false, reasonSyncing, "it has not been rolled out yet")
	}
	return counts
}

func reasonOf(holds bool, reason string) string {
	if holds {
		return reason
	}
	return reasonAsExpected
}

func set(c *ccmv1alpha1.CloudControllerManager, kind string, holds bool, reason, message string) {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	// A condition's message has at most 32768 bytes.
	if len(message) > 32000 {
		message = strings.ToValidUTF8(message[:32000], "") + " ..."
	}
	apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: c.Generation,
	})
}

func (r *ccmReconciler) window(name string) *failure.Window {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.windows[name] == nil {
		r.windows[name] = &failure.Window{Threshold: r.o.DegradedAfter}
	}
	return r.windows[name]
}

func (r *ccmReconciler) deployer(name string) *Deployer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deployers[name] == nil {
		r.deployers[name] = r.newDeployer(name)
	}
	return r.deployers[name]
}

func (r *ccmReconciler) forget(name string) {
	r.mu.Lock()
	delete(r.windows, name)
	delete(r.deployers, name)
	r.mu.Unlock()
	r.notes.missing(name, nil)
}
