// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pages returns Events of a cluster in three pages, and counts.
type pages struct {
	client.Reader
	asked  int
	events [3][]corev1.Event
}

func (p *pages) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	p.asked++
	var o client.ListOptions
	o.ApplyOptions(opts)
	kind, _ := o.FieldSelector.RequiresExactMatch("involvedObject.kind")
	severity, _ := o.FieldSelector.RequiresExactMatch("type")
	if o.Limit == 0 || kind != "Node" || severity != corev1.EventTypeWarning {
		return fmt.Errorf("asked for %+v", o)
	}
	at, _ := strconv.Atoi(o.Continue)
	all := into.(*corev1.EventList)
	all.Items, all.Continue = p.events[at], ""
	if at < len(p.events)-1 {
		all.Continue = strconv.Itoa(at + 1)
	}
	return nil
}

// TestWarningsAreReadOnce for all Nodes, in pages, and again after a while.
func TestWarningsAreReadOnce(t *testing.T) {
	of := func(uid types.UID, reason string, ago time.Duration) corev1.Event {
		e := event(reason, "m", "cloud-node-controller", ago)
		e.InvolvedObject.UID = uid
		return e
	}
	kubelets := of("a", "Kubelet", 0)
	kubelets.ReportingController = "kubelet"
	ours := of("a", "Ours", 0)
	ours.ReportingController = Component
	p := &pages{events: [3][]corev1.Event{{of("a", "Old", time.Hour), of("b", "B", time.Minute)}, {of("a", "New", time.Minute), kubelets, ours}, {of("a", "Older", 2*time.Hour)}}}
	at := now
	w := &Watchdog{Live: p, Interval: 30 * time.Second, Now: func() time.Time { return at }}
	for range 100 {
		for uid, want := range map[types.UID]string{"a": "New", "b": "B", "c": ""} {
			said, err := w.warningOf(t.Context(), uid)
			if err != nil {
				t.Fatal(err)
			}
			if (said != nil) != (want != "") || said != nil && said.Reason != want {
				t.Fatalf("of %s: %v, want %q", uid, said, want)
			}
		}
	}
	if p.asked != 3 {
		t.Errorf("asked %d times for three pages", p.asked)
	}
	at = at.Add(15 * time.Second)
	p.events[0][1] = of("b", "Later", 0)
	if said, err := w.warningOf(t.Context(), "b"); err != nil || said.Reason != "Later" {
		t.Errorf("%v, %v", said, err)
	}
}
