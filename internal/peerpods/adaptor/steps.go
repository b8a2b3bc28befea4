// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"slices"
)

// Names of the steps, as they stand in the journal and in logs.
const (
	stepInspectNetwork = "inspect-network"
	stepChooseZone     = "choose-zone"
	stepReserve        = "reserve"
	stepRecordIntent   = "record-intent"
	stepClaim          = "claim"
	stepCreateInstance = "create-instance"
	stepTunnel         = "tunnel"
	stepConnect        = "connect"
	stepAttachDisks    = "attach-disks"
	stepReady          = "ready"
)

// step is one step of a sandbox's life. do and undo are idempotent, also when
// an earlier process has done the whole of it or a part.
type step struct {
	name string
	// durable: that the step has begun is on disk before it is done.
	durable bool
	// prepare fills the record with what a new process would need to undo the
	// step. It touches nothing outside this process.
	prepare func(*Service, *sandbox) error
	do      func(*Service, context.Context, *sandbox) error
	undo    func(*Service, context.Context, *sandbox) error
	// forgets: undoing it loses the record, so it waits until every later step
	// has been undone. The others are undone even when one of them fails.
	forgets bool
}

// steps returns the life of a sandbox in order; see the package's comment. It is a function
// since those in it refer to it, which they could not to a variable.
func steps() []step {
	return []step{
		{name: stepInspectNetwork, do: (*Service).inspectNetwork},
		{name: stepChooseZone, do: (*Service).chooseZone},
		{name: stepReserve, do: (*Service).reserve, undo: (*Service).unreserve, forgets: true},
		{name: stepRecordIntent, do: (*Service).recordIntent, undo: (*Service).forget, forgets: true},
		{name: stepClaim, do: (*Service).claim, undo: (*Service).release, forgets: true},
		{name: stepCreateInstance, durable: true, prepare: (*Service).prepareInstance, do: (*Service).createInstance, undo: (*Service).deleteInstance},
		{name: stepTunnel, durable: true, do: (*Service).setupTunnel, undo: (*Service).teardownTunnel},
		{name: stepConnect, do: (*Service).connect, undo: (*Service).disconnect},
		{name: stepAttachDisks, do: (*Service).attachDisks},
		{name: stepReady, do: (*Service).markReady},
	}
}

// stepIndex returns the place of a step in the order; -1 for an unknown one.
func stepIndex(name string) int {
	return slices.IndexFunc(steps(), func(st step) bool { return st.name == name })
}

// furthest returns how far a sandbox may have come whose record says name:
// steps that are not durable leave no trace in it.
func furthest(name string) string {
	for _, st := range steps()[stepIndex(name)+1:] {
		if st.durable {
			break
		}
		name = st.name
	}
	return name
}

// Phase is a side of a step.
type Phase string

// Phases in the order in which they occur around one step. The phases of
// undoing follow a pair of their own: before and after the removal is on
// record.
const (
	BeforeDo     Phase = "before-do"
	Begun        Phase = "begun" // on record, not yet done
	AfterDo      Phase = "after-do"
	BeforeRecord Phase = "before-record"
	AfterRecord  Phase = "after-record"
	BeforeUndo   Phase = "before-undo"
	AfterUndo    Phase = "after-undo"
)

// Point is one boundary at which a crash test can end the process.
type Point struct {
	Phase Phase
	Step  string
}

// String returns "<phase>/<step>".
func (p Point) String() string { return string(p.Phase) + "/" + p.Step }

// pointStopping is the Step of the points around the record of a removal.
const pointStopping = "stopping"

// run does steps in order. Its error is a *stepError.
func (s *Service) run(ctx context.Context, sb *sandbox, list []step) error {
	for _, st := range list {
		began := s.opts.Now()
		if err := s.runStep(ctx, sb, st); err != nil {
			err = s.explain(ctx, sb, st.name, err)
			s.observe(sb, Change{Kind: ChangeFailed, Step: st.name, Took: s.opts.Now().Sub(began), Err: err})
			return err
		}
		now := s.opts.Now()
		s.note(sb, st.name, began)
		s.observe(sb, Change{Kind: ChangeDone, Step: st.name, At: now, Took: now.Sub(began)})
	}
	return nil
}

func (s *Service) runStep(ctx context.Context, sb *sandbox, st step) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.opts.Hook(Point{BeforeDo, st.name})
	if st.prepare != nil {
		if err := st.prepare(s, sb); err != nil {
			return err
		}
	}
	sb.update(func(rec *Record) { rec.Step = st.name })
	if st.durable {
		if err := s.persist(sb); err != nil {
			return err
		}
	}
	s.opts.Hook(Point{Begun, st.name})
	err := st.do(s, ctx, sb)
	s.opts.Hook(Point{AfterDo, st.name})
	return err
}
