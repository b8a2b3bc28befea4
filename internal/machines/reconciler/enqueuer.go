// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Enqueuer lets a backend enqueue objects that have news; there is one for each
// kind. Its zero value is ready for use and its methods never block.
type Enqueuer struct {
	mu      sync.Mutex
	queue   queue
	pending []reconcile.Request
}

// Enqueue enqueues the object. Before the controller has started, the request is
// kept.
func (w *Enqueuer) Enqueue(object types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	request := reconcile.Request{NamespacedName: object}
	if w.queue == nil {
		if !slices.Contains(w.pending, request) {
			w.pending = append(w.pending, request)
		}
		return
	}
	w.queue.Add(request)
}

// Source returns the source for a controller to watch.
func (w *Enqueuer) Source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = q
		for _, request := range w.pending {
			q.Add(request)
		}
		w.pending = nil
		return nil
	})
}
