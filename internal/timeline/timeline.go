// SPDX-License-Identifier: Apache-2.0

// Package timeline is the record of where the time of a pod's start goes: the
// steps of the node and those of the guest, on the node's clock. Guest, relay and
// adaptor each note their own (package marks); whoever asks puts them together and
// draws them.
//
// What a guest says of itself is not trusted: [Place] bounds its number and
// lengths, and leaves out what cannot be.
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

// Bounds of one timeline; what is beyond them is left out. The lengths are in bytes.
const (
	MaxSteps  = marks.MaxSteps
	maxName   = 32
	maxDetail = marks.MaxDetail
)

// gap ends a start: what begins longer after everything before it, such as the
// container of somebody who came later, is not a part of it.
const gap = time.Minute

// Step is something that took time.
type Step struct {
	// Name is one of lower-case words with hyphens.
	Name string
	// Where is [Node] or [Guest].
	Where      string
	Start, End time.Time
	// Detail says which, for humans; it may be empty.
	Detail string
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

// New returns the timeline of these steps: in order, without what is no part of
// the start, bounded.
func New(steps ...Step) Timeline {
	steps = slices.Clone(steps)
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End))
	})
	var end time.Time
	for i, s := range steps {
		if i > 0 && s.Start.Sub(end) > gap || i == MaxSteps {
			steps = steps[:i]
			break
		}
		if s.End.After(end) {
			end = s.End
		}
	}
	return Timeline{Steps: steps}
}

// With returns t with more steps of the node.
func (t Timeline) With(steps ...Step) Timeline {
	all := New(slices.Concat(t.Steps, steps)...)
	t.Steps = all.Steps
	return t
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

// Place returns those steps of a guest that can be, cleaned, and what to say if some
// cannot: a VM that was asked for at notBefore took its steps between that and now,
// give or take t's uncertainty and slack.
func Place(steps []Step, notBefore, now time.Time, uncertainty time.Duration) (placed []Step, missing string) {
	least, most := notBefore.Add(-uncertainty-slack), now.Add(uncertainty+slack)
	for _, s := range steps[:min(len(steps), MaxSteps)] {
		s, ok := clean(s)
		if ok && s.Where == Guest && !s.End.Before(s.Start) && !s.Start.Before(least) && !s.End.After(most) {
			placed = append(placed, s)
		}
	}
	if n := len(steps) - len(placed); n > 0 {
		missing = fmt.Sprintf("%d of the guest's steps are left out: they are too many, or not between the request for the VM and now", n)
	}
	return placed, missing
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

// FromProto returns the timeline of a message: cleaned and bounded, with the node's
// clock put forward by offset.
func FromProto(m *pb.Timeline, offset time.Duration) Timeline {
	var steps []Step
	for _, s := range m.GetSteps()[:min(len(m.GetSteps()), 2*MaxSteps)] {
		step, ok := clean(Step{
			Name: s.GetName(), Where: Node, Detail: s.GetDetail(),
			Start: time.Unix(0, s.GetStartNano()).Add(offset), End: time.Unix(0, s.GetEndNano()).Add(offset),
		})
		if s.GetWhere() == Guest {
			step.Where = Guest
		}
		if ok {
			steps = append(steps, step)
		}
	}
	t := New(steps...)
	t.Uncertainty, t.Missing = max(time.Duration(m.GetUncertaintyNano()), 0), redact.Line(m.GetMissing())
	return t
}
