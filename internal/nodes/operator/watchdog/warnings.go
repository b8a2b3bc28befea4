// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// page is how many Events are asked for at a time.
const page = 500

// warnings are the newest ones of cloud controller managers, by the UID of the Node
// that each is about. They are read for all Nodes at once: a cluster in which none
// is initialized has many.
type warnings struct {
	mu     sync.Mutex
	at     time.Time
	newest map[types.UID]corev1.Event
}

// warningsOf returns a manager's warnings about a Node. They may be half an interval
// old.
func (w *Watchdog) warningsOf(ctx context.Context, node types.UID) ([]corev1.Event, error) {
	s := &w.warnings
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := w.Now(); s.newest == nil || now.Sub(s.at) >= w.Interval/2 {
		newest, err := newestWarnings(ctx, w.Live)
		if err != nil {
			return nil, err
		}
		s.newest, s.at = newest, now
	}
	if e, has := s.newest[node]; has {
		return []corev1.Event{e}, nil
	}
	return nil, nil
}

func newestWarnings(ctx context.Context, reader client.Reader) (map[types.UID]corev1.Event, error) {
	newest := map[types.UID]corev1.Event{}
	for next := ""; ; {
		var all corev1.EventList
		// Events about what has no namespace are in the default one.
		err := reader.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault), client.Limit(page), client.Continue(next),
			client.MatchingFieldsSelector{Selector: fields.AndSelectors(
				fields.OneTermEqualSelector("involvedObject.kind", "Node"), fields.OneTermEqualSelector("type", corev1.EventTypeWarning),
			)})
		if err != nil {
			return nil, err
		}
		for _, e := range all.Items {
			had, has := newest[e.InvolvedObject.UID]
			if ofManager(&e) && (!has || timeOf(&had).Before(timeOf(&e))) {
				newest[e.InvolvedObject.UID] = e
			}
		}
		if next = all.Continue; next == "" {
			return newest, nil
		}
	}
}
