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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/redact"
)

// slowBoot is after what time a VM whose agent does not answer is a problem;
// one boots in seconds, on slow clouds in a minute or two.
const slowBoot = 5 * time.Minute

// ofPeerPod describes a PeerPod and what hangs on it.
func (a *App) ofPeerPod(d *Description, pp *v1alpha1.PeerPod) *Part {
	part := &Part{Kind: "PeerPod", Name: pp.Name, State: string(cmp.Or(pp.Status.Phase, claims.PhaseOf(pp))),
		Detail: compact("provider "+pp.Spec.CloudProvider, "sandbox "+pp.Spec.SandboxID, "node "+pp.Spec.NodeName, "age "+a.age(pp.CreationTimestamp.Time))}
	a.claimProblems(d, pp)
	instance := instancePart(pp)
	part.Parts = []*Part{instance}
	if pp.Spec.InstanceID != "" {
		tunnel := conditionPart(pp, "Tunnel", v1alpha1.ConditionConnected)
		tunnel.Parts = []*Part{conditionPart(pp, "Agent", v1alpha1.ConditionReady)}
		instance.Parts = []*Part{tunnel}
	}
	return part
}

func (a *App) age(t time.Time) string { return duration.HumanDuration(a.Now().Sub(t)) }

// claimProblems adds the problems of a PeerPod.
func (a *App) claimProblems(d *Description, pp *v1alpha1.PeerPod) {
	where := "PeerPod " + pp.Name
	if e := pp.Status.LastError; e != nil {
		d.problem(where, e.Class, fmt.Sprintf("step %s failed %s ago: %s", cmp.Or(e.Step, "?"), a.age(e.Time.Time), e.Message), e.Hint)
	}
	if c := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason == claims.ReasonInstanceLost {
		d.problem(where, c.Reason, c.Message, "delete the pod: its controller makes another one, with another VM")
	}
	if since := pp.DeletionTimestamp; since != nil && a.Now().Sub(since.Time) > stuckAfter {
		d.problem(where, "Deleting", "it is being removed since "+a.age(since.Time)+waitReason(pp), "see that peerpod-ctrl runs and reaches the cloud: `kubectl outrigger check`")
	}
	if claims.PhaseOf(pp) == v1alpha1.PhaseConnecting && a.Now().Sub(connectingSince(pp)) > slowBoot {
		d.problem(where, claims.ReasonConnecting, "the agent in the VM has not answered for "+a.age(connectingSince(pp)),
			"see what the VM said: kubectl outrigger logs --console "+claims.PodName(pp)+" -n "+pp.Namespace+"; check that the node reaches its address (security groups, routes)")
	}
	if c := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionListed); c != nil && c.Status == metav1.ConditionFalse {
		d.problem(where, c.Reason, c.Message, "")
	}
}

func connectingSince(pp *v1alpha1.PeerPod) time.Time {
	if c := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionConnected); c != nil {
		return c.LastTransitionTime.Time
	}
	return pp.CreationTimestamp.Time
}

// waitReason returns what the removal waits for.
func waitReason(pp *v1alpha1.PeerPod) string {
	if c := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionDeleting); c != nil {
		return ": " + strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
	}
	if len(pp.Finalizers) > 0 {
		return "; finalizers " + strings.Join(pp.Finalizers, ", ")
	}
	return ""
}

func instancePart(pp *v1alpha1.PeerPod) *Part {
	part := conditionPart(pp, "Instance", v1alpha1.ConditionInstanceCreated)
	part.Name = cmp.Or(pp.Spec.InstanceID, "none yet")
	if i := pp.Status.Instance; i != nil {
		part.Detail = append(compact(prefix("name ", i.Name), prefix("type ", i.Type), prefix("zone ", i.Zone), prefix("addresses ", strings.Join(i.Addresses, ", "))), part.Detail...)
	}
	return part
}

func prefix(text, value string) string {
	if value == "" {
		return ""
	}
	return text + value
}

// conditionPart shows a condition as a part of the tree.
func conditionPart(pp *v1alpha1.PeerPod, kind, conditionType string) *Part {
	c := meta.FindStatusCondition(pp.Status.Conditions, conditionType)
	if c == nil {
		return &Part{Kind: kind, State: "unknown"}
	}
	part := &Part{Kind: kind, State: c.Reason}
	if c.Status != metav1.ConditionTrue {
		part.Detail = compact(firstLine(c.Message))
	}
	return part
}

// firstLine keeps trees readable, without secrets; problems have the whole text.
func firstLine(text string) string {
	const most = 120
	text, _, _ = strings.Cut(text, "\n")
	text = redact.Foreign(text)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

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
		shown = append(shown, Event{Time: lastSeen(e).UTC(), Type: e.Type, source: e.Source.Component, Reason: e.Reason, Message: redact.Foreign(commandline.WithoutProtocol(e.Message)), Count: int(e.Count), age: a.age(lastSeen(e))})
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
