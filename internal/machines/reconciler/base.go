// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/controllers"
)

// Base is what the reconcilers of all kinds need. Zero durations have
// defaults.
type Base struct {
	// Client may read from a cache.
	Client client.Client
	// Events may be nil: then there are none.
	Events *controllers.Recorder
	// Filter is the value of the label cluster.x-k8s.io/watch-filter of the
	// objects that are reconciled; empty: all.
	Filter string
	// Poll is how often to look for what no event reports: 10 seconds.
	Poll time.Duration
	// DeletePoll is how often a deletion without an [Enqueuer] is checked: 5
	// seconds.
	DeletePoll time.Duration
	// Now is the clock.
	Now func() time.Time

	warner Warner
}

// Complete fills in defaults; Setup does it too.
func (b *Base) Complete() {
	if b.Poll == 0 {
		b.Poll = 10 * time.Second
	}
	if b.DeletePoll == 0 {
		b.DeletePoll = 5 * time.Second
	}
	if b.Now == nil {
		b.Now = time.Now
	}
}

func (b *Base) foreign(o client.Object) bool {
	return b.Filter != "" && o.GetLabels()[clusterv1.WatchLabel] != b.Filter
}

// read returns an object to reconcile, or nil if it is gone or another manager's.
func read[T object](ctx context.Context, b *Base, name types.NamespacedName, empty T) (*patcher[T], error) {
	if err := b.Client.Get(ctx, name, empty); err != nil {
		return nil, err
	}
	if b.foreign(empty) {
		return nil, nil
	}
	return &patcher[T]{client: b.Client, stored: empty.DeepCopyObject().(T), desired: empty}, nil
}

// conflictPause is the requeue delay after a conflict: the cache has to see the
// other write first.
const conflictPause = 100 * time.Millisecond

// errStale means that the cache is behind the API server.
var errStale = errors.New("the object was read from a cache that is behind")

// ignoreExpected drops errors that only mean that the object was changed or removed
// meanwhile.
func (b *Base) ignoreExpected(result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err), errors.Is(err, errStale):
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: b.Poll}, nil
	}
	return result, err
}

// afterError returns when to repeat what failed.
func afterError(err error) (reconcile.Result, error) {
	if pause := pauseOf(err); pause > 0 {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	return reconcile.Result{}, err
}

func recordDeleting[T object](ctx context.Context, d *patcher[T], b Base, err error) (reconcile.Result, error) {
	reason, message := clusterv1.DeletingReason, "what was made for it is being removed"
	if err != nil {
		reason, message = reasonOf(err), messageOf(err)
	}
	setDeleting(d.desired, reason, message)
	if saved := saveAndReport(ctx, d, b); saved != nil {
		return reconcile.Result{}, saved
	}
	if err != nil {
		return afterError(err)
	}
	return reconcile.Result{RequeueAfter: b.DeletePoll}, nil
}

// release removes our finalizer from an object in deletion that has no resources
// left. If other finalizers keep the object, its conditions say that our part is
// done.
func release[T object](ctx context.Context, d *patcher[T], finalizer string) error {
	if len(d.desired.GetFinalizers()) > 1 {
		setDeleting(d.desired, clusterv1.DeletionCompletedReason, "what was made for it is gone")
		if err := d.saveStatus(ctx); err != nil {
			return err
		}
	}
	removeFinalizer(d.desired, finalizer)
	return d.saveIdentity(ctx)
}

// addFinalizer adds our finalizer to an object and removes that of an earlier version.
func addFinalizer(o client.Object, finalizer string) {
	controllerutil.AddFinalizer(o, finalizer)
	controllerutil.RemoveFinalizer(o, infrav1.FormerFinalizer(finalizer))
}

// hasFinalizer reports whether an object has our finalizer under either name. Objects
// in deletion keep the old name: the API server refuses new finalizers then.
func hasFinalizer(o client.Object, finalizer string) bool {
	return controllerutil.ContainsFinalizer(o, finalizer) || controllerutil.ContainsFinalizer(o, infrav1.FormerFinalizer(finalizer))
}

func removeFinalizer(o client.Object, finalizer string) {
	controllerutil.RemoveFinalizer(o, finalizer)
	controllerutil.RemoveFinalizer(o, infrav1.FormerFinalizer(finalizer))
}

// clusterNamed returns the Cluster, or nil when there is none.
func clusterNamed(ctx context.Context, c client.Reader, namespace, name string) (*clusterv1.Cluster, error) {
	if name == "" {
		return nil, nil
	}
	cluster := &clusterv1.Cluster{}
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Cluster %s/%s: %w", namespace, name, err)
	}
	return cluster, nil
}
