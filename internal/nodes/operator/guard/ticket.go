// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
)

// Limits are the limits of the guard.
type Limits struct {
	// Prefixes are those of this cloud's providerIDs, such as "aws://"; with none
	// every Node is of this cloud.
	Prefixes []string
	// Deletions is how many tickets there are in each Window.
	Deletions int
	Window    time.Duration
	// NotReadyFor is how long a Node must not have been Ready, and YoungFor how
	// old it must be.
	NotReadyFor, YoungFor time.Duration
	// Unready is the part of all Nodes, from 0 to 1, that may be not Ready. With
	// more there are no tickets: the network is more likely to be at fault. With
	// up to MinNodes Nodes it does not apply.
	Unready  float64
	MinNodes int
	// AllowedFor is how long it counts that a person has allowed a deletion.
	AllowedFor time.Duration
}

// Defaults returns the default limits. Where kube-controller-manager has such a limit
// they are its defaults: 0.55 is its --unhealthy-zone-threshold, and 3 the size below
// which that does not apply.
func Defaults() Limits {
	return Limits{Deletions: 3, Window: 10 * time.Minute, NotReadyFor: 2 * time.Minute, YoungFor: 10 * time.Minute, Unready: 0.55, MinNodes: 2, AllowedFor: time.Hour}
}

// Tickets are the times at which tickets were given, by "name/uid" of the Node.
// They are kept for a window, also when they were used; while its Node is lost
// also afterwards, so that others come first: who deletes did not want it.
type Tickets map[string]time.Time

// Decision is the result of a check of all Nodes.
type Decision struct {
	// Tickets are the former ones that still count and the new ones.
	Tickets Tickets
	// Open are those with which a Node can be deleted now.
	Open []string
	// Refused are Nodes that would be deleted and have no ticket, with the reason.
	Refused map[string]string
	// Again is when time alone changes the decision; 0 is never.
	Again time.Duration
	// given is how many tickets count.
	given int
}

// Decide gives tickets. Nodes that had none come first, and of them those that
// have waited longest.
func (l Limits) Decide(nodes []corev1.Node, had Tickets, now time.Time) Decision {
	d := Decision{Tickets: Tickets{}, Refused: map[string]string{}}
	for who, at := range had {
		if left := at.Add(l.Window).Sub(now); left > 0 {
			d.Tickets[who] = at
			d.given++
			d.soon(left)
		}
	}
	lost := slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool { return ready(&n) })
	slices.SortStableFunc(lost, func(a, b corev1.Node) int {
		return cmp.Or(had[ticketOf(&a)].Compare(had[ticketOf(&b)]), since(&a).Compare(since(&b)))
	})
	stopped := ""
	if len(nodes) > l.MinNodes && float64(len(lost)) > l.Unready*float64(len(nodes)) {
		stopped = fmt.Sprintf("%d of %d Nodes are not Ready, more than %.0f %%: no Node is deleted until it is known that they are gone", len(lost), len(nodes), l.Unready*100)
	}
	for i := range lost {
		l.decide(&d, &lost[i], had, stopped, now)
	}
	slices.Sort(d.Open)
	return d
}

func (l Limits) decide(d *Decision, n *corev1.Node, had Tickets, stopped string, now time.Time) {
	who := ticketOf(n)
	_, has := d.Tickets[who]
	wait := max(since(n).Add(l.NotReadyFor).Sub(now), n.CreationTimestamp.Add(l.YoungFor).Sub(now))
	switch {
	case !l.ours(n) && n.Spec.ProviderID == "":
		d.Refused[n.Name] = "it has no providerID, so that nobody knows whether it is of this cloud"
	case !l.ours(n):
		d.Refused[n.Name] = fmt.Sprintf("its providerID %q is of another cloud (here: %s)", n.Spec.ProviderID, strings.Join(l.Prefixes, ", "))
	case wait > 0: // it is new or was Ready a moment ago: that it has no ticket is how it should be
		d.soon(wait)
	case stopped != "":
		d.Refused[n.Name] = stopped
	case has:
		d.Open = append(d.Open, who)
	case d.given >= l.Deletions:
		d.Refused[n.Name] = fmt.Sprintf("%d Nodes were given up in the last %s", d.given, l.Window)
		if at, had := had[who]; had {
			d.Tickets[who] = at
		}
	default:
		d.Tickets[who] = now
		d.given++
		d.soon(l.Window)
		d.Open = append(d.Open, who)
	}
}

func ticketOf(n *corev1.Node) string { return n.Name + "/" + string(n.UID) }

func (d *Decision) soon(wait time.Duration) {
	if d.Again == 0 || wait < d.Again {
		d.Again = wait
	}
}

func (l Limits) ours(n *corev1.Node) bool {
	return len(l.Prefixes) == 0 || slices.ContainsFunc(l.Prefixes, func(p string) bool { return strings.HasPrefix(n.Spec.ProviderID, p) })
}

func ready(n *corev1.Node) bool {
	_, c := nodeutil.GetNodeCondition(&n.Status, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// since returns when a Node ceased to be Ready, or its creation if it never was.
func since(n *corev1.Node) time.Time {
	if _, c := nodeutil.GetNodeCondition(&n.Status, corev1.NodeReady); c != nil && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return n.CreationTimestamp.Time
}

// Allowances are the times at which what a person allowed was seen first, by
// "name/uid" of the Node.
type Allowances map[string]time.Time

// lapse has the allowances that hold and those that have expired: an allowance does
// not last for ever, in case it was wrong or the Node came back.
type lapse struct {
	// Allowed are those that a Node still has. Expired ones stay until they are
	// removed from the Node: otherwise they would start again.
	Allowed Allowances
	// Ended are the Nodes, by name, whose allowance has ended, with the reason.
	Ended map[string]string
	// Again is when the next one ends; 0 is never.
	Again time.Duration
}

// lapses looks at all Nodes that a person has allowed to be deleted.
func (l Limits) lapses(nodes []corev1.Node, had Allowances, now time.Time) lapse {
	is := lapse{Allowed: Allowances{}, Ended: map[string]string{}}
	for i := range nodes {
		n := &nodes[i]
		if n.Annotations[Annotation] != Allow {
			continue
		}
		at, known := had[ticketOf(n)]
		if !known {
			at = now
		}
		is.Allowed[ticketOf(n)] = at
		left := at.Add(l.AllowedFor).Sub(now)
		switch {
		case known && ready(n) && since(n).After(at):
			is.Ended[n.Name] = "the Node is Ready again"
		case left <= 0:
			is.Ended[n.Name] = fmt.Sprintf("%s have passed", l.AllowedFor)
		case is.Again == 0 || left < is.Again:
			is.Again = left
		}
	}
	return is
}
