// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// Again is how soon to look again when somebody else has just written, or the
// cache has not seen our own write yet.
const Again = 200 * time.Millisecond

// All is the name of the singleton request: that of OpenShift's objects.
var All = types.NamespacedName{Name: openshift.ClusterName}

// Everything maps any event to the singleton request.
func Everything(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: All}}
}

// RateLimiter returns an exponential backoff up to the longest time.
func RateLimiter(longest time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](Again/2, longest)
}

// Periodically enqueues objects at the start and at intervals: of the singleton there may
// be no object at all.
func Periodically(every time.Duration, what handler.MapFunc) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go tick(ctx, every, func() {
			for _, r := range what(ctx, nil) {
				q.Add(r)
			}
		})
		return nil
	})
}

// pollFile is how often a mounted file is looked at. The kubelet itself takes a
// minute to replace it.
const pollFile = 5 * time.Second

// WhenReplaced enqueues the singleton when a file was replaced, made or removed, as
// mounted ConfigMaps are.
func WhenReplaced(file string) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		seen := stamp(file)
		go tick(ctx, pollFile, func() {
			if is := stamp(file); is != seen {
				seen = is
				q.Add(reconcile.Request{NamespacedName: All})
			}
		})
		return nil
	})
}

// tick calls now, and then from time to time until the context ends.
func tick(ctx context.Context, every time.Duration, call func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		call()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// stamp changes with a file's content or its presence.
func stamp(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return err.Error()
	}
	return info.ModTime().String() + " " + info.Mode().String()
}
