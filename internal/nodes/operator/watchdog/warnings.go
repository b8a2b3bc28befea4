// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"cmp"
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// page is how many Events are asked for at a time.
const page = 500

// warnings are the newest ones of cloud controller managers, by the UID of the Node
// that each is about. They are read for all Nodes at once: a cluster in which none
// is initialized has many.
type warnings struct {
	at     time.Time
	newest map[types.UID]*corev1.Event
}

// warningOf returns a manager's newest warning about a Node, or nil. It may be half an
// interval old.
func (w *Watchdog) warningOf(ctx context.Context, node types.UID) (*corev1.Event, error) {
	s := &w.warnings
	if now := w.Now(); s.newest == nil || now.Sub(s.at) >= w.Interval/2 {
		newest, err := newestWarnings(ctx, w.Live)
		if err != nil {
			return nil, err
		}
		s.newest, s.at = newest, now
	}
	return s.newest[node], nil
}

func newestWarnings(ctx context.Context, reader client.Reader) (map[types.UID]*corev1.Event, error) {
	newest := map[types.UID]*corev1.Event{}
	for next := ""; ; {
		var all corev1.EventList
		// Events about what has no namespace are in the default one.
		err := reader.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault), client.Limit(page), client.Continue(next),
			client.MatchingFields{"involvedObject.kind": "Node", "type": corev1.EventTypeWarning})
		if err != nil {
			return nil, err
		}
		for _, e := range all.Items {
			had := newest[e.InvolvedObject.UID]
			if ofManager(&e) && (had == nil || timeOf(had).Before(timeOf(&e))) {
				newest[e.InvolvedObject.UID] = &e
			}
		}
		if next = all.Continue; next == "" {
			return newest, nil
		}
	}
}

func ofManager(e *corev1.Event) bool {
	from := cmp.Or(e.ReportingController, e.Source.Component)
	return strings.Contains(from, "cloud") && from != Component
}

func timeOf(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}
