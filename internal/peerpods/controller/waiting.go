// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
)

// queue is where reconcile requests wait.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// removal is what this process remembers of a PeerPod in deletion. A restarted
// controller deletes the instances again, which is harmless. It belongs to the
// reconciliation of that PeerPod, of which there is one at a time.
type removal struct {
	// asked is when this process had first tried all deletions with success, without an
	// instance in the PeerPod; zero before that.
	asked time.Time
	// done is when its instances were deleted, so that a later list is the proof; zero
	// before that.
	done time.Time
}

func (r *Reconciler) removal(uid types.UID) *removal {
	of, _ := r.removals.LoadOrStore(uid, &removal{})
	return of.(*removal)
}

// waiters are the PeerPods that wait for a provider's next list.
type waiters struct {
	mu    sync.Mutex
	queue queue
	of    map[string]map[types.NamespacedName]bool
}

func (w *waiters) start(q queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
}

func (w *waiters) add(provider string, pp *v1alpha1.PeerPod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string]map[types.NamespacedName]bool{}
	}
	if w.of[provider] == nil {
		w.of[provider] = map[types.NamespacedName]bool{}
	}
	w.of[provider][client.ObjectKeyFromObject(pp)] = true
}

// wake enqueues all PeerPods that wait for the provider.
func (w *waiters) wake(provider string) {
	w.mu.Lock()
	waiting := w.of[provider]
	delete(w.of, provider)
	w.mu.Unlock()
	for name := range waiting {
		w.enqueue(name)
	}
}

// enqueue asks for the reconciliation of one PeerPod.
func (w *waiters) enqueue(name types.NamespacedName) {
	w.mu.Lock()
	q := w.queue
	w.mu.Unlock()
	if q != nil {
		q.Add(reconcile.Request{NamespacedName: name})
	}
}
