// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/redact"
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

// aboutObject selects the Events of one object.
func aboutObject(kind, name string) map[string]string {
	return map[string]string{"fieldSelector": "involvedObject.kind=" + kind + ",involvedObject.name=" + name}
}

// newest returns the newest Events, oldest first. Those of an earlier object of the name are left out, unless the
// object is gone and has no UID.
func (a *App) newest(events []*corev1.Event, uid string) []Event {
	events = slices.DeleteFunc(slices.Clone(events), func(e *corev1.Event) bool { return uid != "" && string(e.InvolvedObject.UID) != uid })
	slices.SortStableFunc(events, func(x, y *corev1.Event) int { return lastSeen(x).Compare(lastSeen(y)) })
	shown := []Event{}
	for _, e := range events[max(0, len(events)-maxEvents):] {
		shown = append(shown, Event{Time: lastSeen(e).UTC(), Type: e.Type, source: e.Source.Component, Reason: e.Reason, Message: redact.Foreign(e.Message), Count: int(e.Count), age: a.age(lastSeen(e))})
	}
	return shown
}

func (d *Description) print(w io.Writer) {
	d.printTree(w)
	d.printEvents(w)
}

// printTree prints all but the Events, the problems first.
func (d *Description) printTree(w io.Writer) {
	switch {
	case d.Problems == nil: // nobody has looked for them
	case len(d.Problems) == 0:
		fmt.Fprint(w, "No problems.\n\n")
	default:
		fmt.Fprintln(w, "Problems:")
	}
	for _, p := range d.Problems {
		fmt.Fprintf(w, "  %s: %s%s\n", p.Where, prefixed(p.Reason), strings.ReplaceAll(strings.TrimSpace(p.Message), "\n", "\n    "))
		if p.Hint != "" {
			fmt.Fprintf(w, "    -> %s\n", p.Hint)
		}
	}
	if len(d.Problems) > 0 {
		fmt.Fprintln(w)
	}
	d.Tree.print(w, "", "")
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
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s%s\n", e.age, e.Type, e.Reason, e.Message, times)
	}
	table.Flush()
}
