// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxEvents is how many Events are shown, the newest.
const maxEvents = 15

// Event is an Event of the pod.
type Event struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count,omitempty"`
	age     string
	source  string // who reports it
}

// podEvents returns the newest Events of the pod, oldest first. Those of an
// earlier pod of the name are left out unless the pod is gone.
func (a *App) podEvents(ctx context.Context, c *cluster, namespace, name, uid string) ([]Event, error) {
	selector := "involvedObject.kind=Pod,involvedObject.name=" + name
	events, err := list[corev1.Event](ctx, c, core(namespace, "events"), map[string]string{"fieldSelector": selector})
	if err != nil {
		return nil, fmt.Errorf("list the Events of pod %s/%s: %w", namespace, name, err)
	}
	events = slices.DeleteFunc(events, func(e corev1.Event) bool { return uid != "" && string(e.InvolvedObject.UID) != uid })
	slices.SortStableFunc(events, func(x, y corev1.Event) int { return lastSeen(&x).Compare(lastSeen(&y)) })
	shown := []Event{}
	for _, e := range events[max(0, len(events)-maxEvents):] {
		shown = append(shown, Event{Time: lastSeen(&e).UTC(), Type: e.Type, source: e.Source.Component, Reason: e.Reason, Message: e.Message, Count: int(e.Count), age: a.age(lastSeen(&e))})
	}
	return shown, nil
}

func (d *Description) print(w io.Writer) {
	if len(d.Problems) == 0 {
		fmt.Fprintln(w, "No problems.")
	} else {
		fmt.Fprintln(w, "Problems:")
	}
	for _, p := range d.Problems {
		fmt.Fprintf(w, "  %s: %s%s\n", p.Where, prefixed(p.Reason), strings.ReplaceAll(strings.TrimSpace(p.Message), "\n", "\n    "))
		if p.Hint != "" {
			fmt.Fprintf(w, "    -> %s\n", p.Hint)
		}
	}
	fmt.Fprintln(w)
	d.Tree.print(w, "", "")
	d.printEvents(w)
}

func prefixed(reason string) string {
	if reason == "" {
		return ""
	}
	return reason + ": "
}

// print draws the part: head is before its own line, body before those below.
func (p *Part) print(w io.Writer, head, body string) {
	line := head + p.Kind
	if p.Name != "" {
		line += " " + p.Name
	}
	line += "  " + cmp.Or(p.State, "unknown")
	if len(p.Detail) > 0 {
		line += "  (" + strings.Join(p.Detail, "; ") + ")"
	}
	fmt.Fprintln(w, line)
	for i, child := range p.Parts {
		if i == len(p.Parts)-1 {
			child.print(w, body+"└─ ", body+"   ")
		} else {
			child.print(w, body+"├─ ", body+"│  ")
		}
	}
}

func (d *Description) printEvents(w io.Writer) {
	if len(d.Events) == 0 {
		return
	}
	fmt.Fprintln(w, "\nEvents:")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range d.Events {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (%d times)", e.Count)
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s%s\n", e.age, e.Type, e.Reason, strings.ReplaceAll(e.Message, "\n", " "), times)
	}
	table.Flush()
}
