// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func limits() Limits {
	l := Defaults()
	l.Prefixes = []string{"libvirt://"}
	return l
}

// aNode has been Ready, or not, for a while; it is a day old.
func aNode(name string, ready bool, lasting time.Duration) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(now.Add(-24 * time.Hour))}}
	n.Spec.ProviderID = "libvirt://" + name
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-lasting))}
	if ready {
		c.Status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{c}
	return n
}

// fleet has Ready Nodes beside others.
func fleet(ready int, others ...corev1.Node) []corev1.Node {
	for i := range ready {
		others = append(others, aNode(fmt.Sprintf("ready-%d", i), true, time.Hour))
	}
	return others
}

func TestOneLostNodeGetsATicket(t *testing.T) {
	d := limits().Decide(fleet(3, aNode("lost", false, time.Hour)), nil, now)
	if !slices.Equal(d.Open, []string{"lost/lost-uid"}) || len(d.Refused) > 0 || d.Again != 10*time.Minute {
		t.Errorf("%+v", d)
	}
}

func TestNoTicket(t *testing.T) {
	young, foreign, never := aNode("n", false, time.Hour), aNode("n", false, time.Hour), aNode("n", false, 0)
	nameless := aNode("n", false, time.Hour)
	nameless.Spec.ProviderID = ""
	young.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
	foreign.Spec.ProviderID = "aws:///n"
	never.Status.Conditions, never.CreationTimestamp = nil, metav1.NewTime(now.Add(-time.Minute))
	for name, c := range map[string]struct {
		nodes []corev1.Node
		says  string
		again time.Duration
	}{
		"just lost":   {fleet(3, aNode("n", false, time.Minute)), "", time.Minute},
		"young":       {fleet(3, young), "", 9 * time.Minute},
		"never ready": {fleet(3, never), "", 9 * time.Minute},
		"foreign":     {fleet(3, foreign), `"aws:///n" is of another cloud (here: libvirt://)`, 0},
		"nameless":    {fleet(3, nameless), "it has no providerID", 0},
		"most lost":   {fleet(1, aNode("n", false, time.Hour), aNode("m", false, time.Hour)), "2 of 3 Nodes are not Ready", 0},
		"all lost":    {fleet(0, aNode("n", false, time.Hour), aNode("m", false, time.Hour), aNode("o", false, time.Hour)), "3 of 3", 0},
	} {
		d := limits().Decide(c.nodes, nil, now)
		said := c.says == "" && len(d.Refused) == 0 || c.says != "" && strings.Contains(d.Refused["n"], c.says)
		if len(d.Open) > 0 || !said || d.Again != c.again {
			t.Errorf("%s: %+v, want %q, again %s", name, d, c.says, c.again)
		}
	}
}

// TestWindow: of many Nodes that are lost one after another, just so many go.
func TestWindow(t *testing.T) {
	lost := func(n int) (all []corev1.Node) {
		for i := range n {
			all = append(all, aNode(fmt.Sprintf("lost-%d", i), false, time.Hour-time.Duration(i)*time.Minute))
		}
		return all
	}
	d := limits().Decide(fleet(10, lost(5)...), nil, now)
	if want := []string{"lost-0/lost-0-uid", "lost-1/lost-1-uid", "lost-2/lost-2-uid"}; !slices.Equal(d.Open, want) || len(d.Refused) != 2 {
		t.Fatalf("%+v, want %q", d, want)
	}
	// The three are gone: their tickets count on.
	later := limits().Decide(fleet(10, lost(5)[3:]...), d.Tickets, now.Add(time.Minute))
	if len(later.Open) > 0 || len(later.Refused) != 2 || later.Again != 9*time.Minute {
		t.Fatalf("%+v", later)
	}
	after := limits().Decide(fleet(10, lost(5)[3:]...), later.Tickets, now.Add(10*time.Minute))
	if len(after.Open) != 2 || len(after.Tickets) != 2 {
		t.Fatalf("%+v", after)
	}
}

// TestNobodyIsInTheWay: Nodes that are lost and that nobody deletes do not keep
// others from their turn.
func TestNobodyIsInTheWay(t *testing.T) {
	l := limits()
	l.Deletions = 1
	nodes := fleet(5, aNode("stays", false, 3*time.Hour), aNode("stays-too", false, 2*time.Hour), aNode("goes", false, time.Hour))
	var tickets Tickets
	for i, want := range []string{"stays", "stays-too", "goes", "stays", "stays-too", "goes"} {
		at := now.Add(time.Duration(i) * l.Window)
		d := l.Decide(nodes, tickets, at)
		if !slices.Equal(d.Open, []string{want + "/" + want + "-uid"}) || len(d.Refused) != 2 {
			t.Fatalf("window %d: %+v, want %s", i, d, want)
		}
		if again := l.Decide(nodes, d.Tickets, at); !slices.Equal(again.Open, d.Open) || !maps.EqualFunc(again.Tickets, d.Tickets, time.Time.Equal) {
			t.Fatalf("window %d: %+v, and at once %+v", i, d, again)
		}
		tickets = d.Tickets
	}
}

// TestReadyAgain: a ticket is void while its Node is Ready, and of no use to
// another Node of that name.
func TestReadyAgain(t *testing.T) {
	had := Tickets{"n/n-uid": now.Add(-time.Minute)}
	if d := limits().Decide(fleet(3, aNode("n", true, time.Second)), had, now); len(d.Open) > 0 || len(d.Tickets) != 1 {
		t.Errorf("%+v", d)
	}
	other := aNode("n", false, time.Hour)
	other.UID = "other"
	if d := limits().Decide(fleet(3, other), had, now); !slices.Equal(d.Open, []string{"n/other"}) || len(d.Tickets) != 2 {
		t.Errorf("%+v", d)
	}
}
