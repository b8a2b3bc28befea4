// SPDX-License-Identifier: Apache-2.0

// Package timeline is the record of where the time of a pod's start goes: the
// steps of the node and those of the guest, on the node's clock. Guest, relay and
// adaptor each note their own (package marks); whoever asks puts them together and
// draws them.
//
// What a guest says of itself is not trusted: [FromProto] bounds its number and
// lengths, and [Timeline.Plausible] leaves out what cannot be.
package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	pb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/timeline/marks"
)

// Where a step was taken.
const (
	Node  = "node"
	Guest = "guest"
)

// Bounds of what others say; the lengths are in bytes.
const (
	maxSteps  = marks.MaxSteps
	maxName   = 32
	maxDetail = marks.MaxDetail
)

// gap ends a start: what begins longer after everything before it, such as the
// container of somebody who came later, is not a part of it.
const gap = time.Minute

// Step is something that took time.
type Step struct {
	// Name is one of lower-case words with hyphens.
	Name string `json:"name"`
	// Where is [Node] or [Guest].
	Where string    `json:"where"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Detail says which, for humans; it may be empty.
	Detail string `json:"detail,omitempty"`
}

// Took returns how long the step took.
func (s Step) Took() time.Duration { return s.End.Sub(s.Start) }

// Timeline is what is known of one pod's start.
type Timeline struct {
	// Steps are in the order of their starts.
	Steps []Step
	// Uncertainty is by how much the guest's steps may be early or late among the
	// node's.
	Uncertainty time.Duration
	// Missing says why the guest's steps, or some of them, are missing; empty if
	// they are not.
	Missing string
}

// With returns t with more steps of the node: all in order, without those that are not
// part of the start.
func (t Timeline) With(more ...Step) Timeline {
	steps := slices.Concat(t.Steps, more)
	slices.SortStableFunc(steps, func(a, b Step) int {
		// One that contains others comes before them, a moment before what it begins.
		moment := func(s Step) int { return min(1, int(s.Took())) }
		return cmp.Or(a.Start.Compare(b.Start), moment(a)-moment(b), b.End.Compare(a.End))
	})
	var end time.Time
	for i, s := range steps {
		if i > 0 && s.Start.Sub(end) > gap {
			steps = steps[:i]
			break
		}
		if s.End.After(end) {
			end = s.End
		}
	}
	t.Steps = steps
	return t
}

// Names are those steps of guest and relay that our programs know: a label of a metric, or
// the name of a step in an object, must not be a guest's to choose.
var Names = []string{
	"await-vm", "tcp-connect", "tls-handshake", "first-reply",
	"kernel", "restored", "kernel-modules", "drivers-of-clouds", "seed", "identity", "scratch-disk", "hostname", "network", "user-data", "encrypted-scratch-disk",
	"agent", "pod-network", "forwarder", "create-sandbox", "resolve-image", "download-layer", "unpack-layer", "mount-image",
	"runtime-create", marks.RuntimeStart,
}

// Summary returns one step for each of the Names that t has: from its first beginning to
// its last end.
func (t Timeline) Summary() []Step {
	var all []Step
	for _, s := range t.Steps {
		if !slices.Contains(Names, s.Name) {
			continue
		}
		i := slices.IndexFunc(all, func(known Step) bool { return known.Name == s.Name })
		if i < 0 {
			s.Detail = ""
			all = append(all, s)
		} else if s.End.After(all[i].End) {
			all[i].End = s.End
		}
	}
	return all
}

// Bounds returns when the first step began and the last one ended.
func (t Timeline) Bounds() (start, end time.Time) {
	for i, s := range t.Steps {
		if i == 0 {
			start = s.Start
		}
		if s.End.After(end) {
			end = s.End
		}
	}
	return start, end
}

// Plausible returns t without those steps of the guest that cannot be: a VM that was
// asked for at asked has taken its steps between that and now, give or take the
// uncertainty and slack. Missing says so.
func (t Timeline) Plausible(asked, now time.Time) Timeline {
	around := min(t.Uncertainty, gap) + slack
	least, most := asked.Add(-around), now.Add(around)
	kept := slices.DeleteFunc(slices.Clone(t.Steps), func(s Step) bool {
		return s.Where == Guest && (s.End.Before(s.Start) || s.Start.Before(least) || s.End.After(most))
	})
	if n := len(t.Steps) - len(kept); n > 0 {
		t.Missing = strings.TrimPrefix(fmt.Sprintf("%s; %d steps of the guest are not between the request for its VM and now", t.Missing, n), "; ")
	}
	t.Steps = kept
	return t
}

// slack is for clocks that were set between a step and the comparison of the clocks.
const slack = 50 * time.Millisecond

// clean returns a step with a text that may go to a terminal; false if its name is
// not one.
func clean(s Step) (Step, bool) {
	if s.Name == "" || len(s.Name) > maxName || strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return Step{}, false
	}
	s.Detail = strings.Map(func(r rune) rune {
		if r == ' ' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, s.Detail[:min(len(s.Detail), 4*maxDetail)])
	for i := range s.Detail {
		if i > maxDetail-utf8Max {
			s.Detail = s.Detail[:i]
			break
		}
	}
	return s, true
}

// utf8Max is the most bytes of one character.
const utf8Max = 4

// ToProto returns the message of a timeline.
func ToProto(t Timeline) *pb.Timeline {
	m := &pb.Timeline{UncertaintyNano: int64(t.Uncertainty), Missing: t.Missing}
	for _, s := range t.Steps {
		m.Steps = append(m.Steps, &pb.Step{
			Name: s.Name, Where: s.Where, StartNano: s.Start.UnixNano(), EndNano: s.End.UnixNano(), Detail: s.Detail,
		})
	}
	return m
}

// FromProto returns the timeline of a message, cleaned and bounded.
func FromProto(m *pb.Timeline) Timeline {
	t := Timeline{Uncertainty: max(time.Duration(m.GetUncertaintyNano()), 0), Missing: redact.Line(m.GetMissing())}
	count := map[string]int{}
	for _, s := range m.GetSteps() {
		where := Node
		if s.GetWhere() == Guest {
			where = Guest
		}
		step, ok := clean(Step{
			Name: s.GetName(), Where: where, Detail: s.GetDetail(), Start: time.Unix(0, s.GetStartNano()), End: time.Unix(0, s.GetEndNano()),
		})
		if ok && count[where] < maxSteps {
			count[where]++
			t.Steps = append(t.Steps, step)
		}
	}
	return t
}

// OfGuest returns the steps of a guest on the node's clock.
func OfGuest(steps []*pb.Step, clock Clock) []Step {
	m := &pb.Timeline{}
	for _, s := range steps {
		m.Steps = append(m.Steps, &pb.Step{
			Name: s.GetName(), Where: Guest, Detail: s.GetDetail(),
			StartNano: s.GetStartNano() + int64(clock.Offset), EndNano: s.GetEndNano() + int64(clock.Offset),
		})
	}
	return FromProto(m).Steps
}
