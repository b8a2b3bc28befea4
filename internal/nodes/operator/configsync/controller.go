// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// cluster is the name of OpenShift's objects, and that of all work.
var cluster = daemon.All

// controller does work when it is woken, and says how that went.
type controller struct {
	name string
	// sync does the work; it returns what of its input it left out.
	sync   func(context.Context) (left string, err error)
	status *status.SyncWriter
	window *failure.Window
	now    func() time.Time
	log    *slog.Logger

	// objects, ConfigMaps that are ours, and that of administrators whose name user
	// returns, wake it.
	objects []client.Object
	ours    []types.NamespacedName
	user    func(context.Context) (string, error)
}

// add adds the controller to the manager.
func (c *controller) add(mgr manager.Manager, resync time.Duration, log *slog.Logger) error {
	c.now, c.log = time.Now, log.With("controller", c.name)
	several := true // managers in one process, in tests
	b := builder.ControllerManagedBy(mgr).Named(c.name).
		WithOptions(ctrl.Options{
			SkipNameValidation: &several,
			RateLimiter:        daemon.RateLimiter(c.window.Retry()),
		}).
		WatchesRawSource(daemon.Periodically(resync, daemon.Everything)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.configMap)).
		Watches(&openshift.ClusterOperator{}, handler.EnqueueRequestsFromMapFunc(daemon.Everything), builder.WithPredicates(c.unsaid()))
	for _, o := range c.objects {
		b.Watches(o, handler.EnqueueRequestsFromMapFunc(daemon.Everything))
	}
	return b.Complete(c)
}

// configMap lets through those that matter: an unrelated one must not make a
// controller say anything.
func (c *controller) configMap(ctx context.Context, o client.Object) []reconcile.Request {
	if name := client.ObjectKeyFromObject(o); name.Namespace == userNamespace {
		user, err := c.user(ctx)
		if err == nil && user != name.Name {
			return nil
		}
	} else if !slices.Contains(c.ours, name) {
		return nil
	}
	return daemon.Everything(ctx, o)
}

// unsaid lets through a ClusterOperator that lost what the controller says.
func (c *controller) unsaid() predicate.Predicate {
	lacks := func(o client.Object) bool {
		is, ok := o.(*openshift.ClusterOperator)
		return ok && !c.status.Said(is)
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return lacks(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return lacks(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(e event.GenericEvent) bool { return lacks(e.Object) },
	}
}

// Reconcile does the work and reports the result. A failure that only a change of an
// object ends is reported at once and not retried; others are reported when they have
// lasted.
func (c *controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	left, err := c.sync(ctx)
	switch {
	case err == nil:
		c.window.Clear()
		if left != "" {
			c.log.Warn("left out", "what", left)
		}
		return reconcile.Result{}, c.status.Available(ctx, left)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		again, counts := c.window.Conflict(c.now())
		if !counts {
			return reconcile.Result{RequeueAfter: again}, nil
		}
		return reconcile.Result{RequeueAfter: again}, c.status.Degraded(ctx, err)
	case failure.IsTerminal(err):
		c.log.Error("not tried again until something changes", "error", err)
		return reconcile.Result{}, c.status.Degraded(ctx, err)
	case c.window.Observe(c.now()):
		return reconcile.Result{}, errors.Join(err, c.status.Degraded(ctx, err))
	default:
		return reconcile.Result{}, errors.Join(err, c.status.Failing(ctx, err))
	}
}
