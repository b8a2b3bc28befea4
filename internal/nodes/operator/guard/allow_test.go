// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestAllowancesEnd after their time, or when the Node is Ready again; not because the
// Node is Ready when it is allowed to go. One that has ended is known until it is taken
// from the Node: else it would begin again if that failed, or after a crash in between.
func TestAllowancesEnd(t *testing.T) {
	node := func(ready bool, lasting time.Duration) corev1.Node {
		n := aNode("n", ready, lasting)
		n.Annotations = map[string]string{Annotation: Allow}
		return n
	}
	seen := func(ago time.Duration) Allowances { return Allowances{"n/n-uid": now.Add(-ago)} }
	for name, c := range map[string]struct {
		node  corev1.Node
		had   Allowances
		ended string
		again time.Duration
	}{
		"new":                     {node(false, time.Hour), nil, "", time.Hour},
		"new, and Ready":          {node(true, time.Minute), nil, "", time.Hour},
		"of another of its name":  {node(false, time.Hour), Allowances{"n/other": now.Add(-2 * time.Hour)}, "", time.Hour},
		"seen":                    {node(false, time.Hour), seen(20 * time.Minute), "", 40 * time.Minute},
		"Ready since before":      {node(true, time.Hour), seen(20 * time.Minute), "", 40 * time.Minute},
		"Ready again":             {node(true, time.Minute), seen(20 * time.Minute), "Ready again", 0},
		"lost after it was set":   {node(false, time.Minute), seen(20 * time.Minute), "", 40 * time.Minute},
		"over":                    {node(false, 2*time.Hour), seen(time.Hour), "1h0m0s have passed", 0},
		"over, and nobody allows": {aNode("n", false, time.Hour), seen(time.Hour), "", 0},
	} {
		is := limits().lapses([]corev1.Node{c.node}, c.had, now)
		if says := is.Ended["n"]; (says == "") != (c.ended == "") || !strings.Contains(says, c.ended) || is.Again != c.again || len(is.Allowed) > 0 != (c.node.Annotations[Annotation] == Allow) {
			t.Errorf("%s: %+v, want %q, again %s", name, is, c.ended, c.again)
		}
	}
}
