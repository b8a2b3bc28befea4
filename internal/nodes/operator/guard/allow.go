// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

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
