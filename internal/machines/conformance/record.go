// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// history is every state that objects of a kind went through, in order.
type history struct {
	mu     sync.Mutex
	states []*unstructured.Unstructured
}

// record keeps the states of all objects of a kind in the place until the check
// ends.
func (fx *fixture) record(kind *unstructured.Unstructured) *history {
	h := &history{}
	w, err := fx.Client.Watch(fx.Context(), listOf(kind), client.InNamespace(fx.namespace))
	if err != nil {
		fx.Fatalf("watch %s: %v", kind.GetKind(), err)
	}
	ended := make(chan struct{})
	fx.Cleanup(func() { w.Stop(); <-ended })
	go func() {
		defer close(ended)
		for event := range w.ResultChan() {
			if fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event.Object); err == nil {
				h.add((&unstructured.Unstructured{Object: fields}).DeepCopy())
			}
		}
	}()
	return h
}

func (h *history) add(u *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, u)
}

func (fx *fixture) untilSeen(h *history, what string, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	var seen *unstructured.Unstructured
	fx.until(fx.Limits.Provision, what, func() string {
		for _, u := range h.all() {
			if is(u) {
				seen = u
				return ""
			}
		}
		return "not seen yet"
	})
	return seen
}

func (h *history) all() []*unstructured.Unstructured {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.states[:len(h.states):len(h.states)]
}
