// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// cluster is the name of OpenShift's objects, and that of all work.
var cluster = daemon.All

// controller says how its work went.
type controller struct {
	// sync does the work; it returns what of its input it left out.
	sync   func(context.Context) (left string, err error)
	status *status.SyncWriter
	window *failure.Window
	now    func() time.Time
	log    *slog.Logger
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
		if counts {
			return reconcile.Result{RequeueAfter: again}, c.status.Degraded(ctx, err)
		}
		return reconcile.Result{RequeueAfter: again}, nil
	case failure.IsTerminal(err):
		c.log.Error("not tried again until something changes", "error", err)
		return reconcile.Result{}, c.status.Degraded(ctx, err)
	case c.window.Observe(c.now()):
		return reconcile.Result{}, errors.Join(err, c.status.Degraded(ctx, err))
	default:
		return reconcile.Result{}, errors.Join(err, c.status.Failing(ctx, err))
	}
}
