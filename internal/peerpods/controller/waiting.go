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

// removals remembers when the instances of PeerPods in deletion were deleted,
// so that a later list is the proof. A restarted controller deletes again,
// which is harmless.
type removals struct {
	mu   sync.Mutex
	done map[types.UID]time.Time
	// asked is when this process first saw that a PeerPod is being deleted.
	asked map[types.UID]time.Time
}

// since returns when this process first saw that a PeerPod is being deleted: now, if it
// had not yet.
func (r *removals) since(uid types.UID, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil {
		r.asked = map[types.UID]time.Time{}
	}
	if r.asked[uid].IsZero() {
		r.asked[uid] = now
	}
	return r.asked[uid]
}

func (r *removals) of(uid types.UID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[uid]
}

func (r *removals) set(uid types.UID, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil {
		r.done = map[types.UID]time.Time{}
	}
	r.done[uid] = at
}

func (r *removals) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.done, uid)
}

// drop drops the state of a PeerPod whose finalizer was removed.
func (r *removals) drop(uid types.UID) {
	r.forget(uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, uid)
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
