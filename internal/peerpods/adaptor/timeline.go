// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/attest"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// firstLook is the pause before a guest that has just started is asked for its
	// steps, lastLook the longest before it is asked again.
	firstLook = 2 * time.Second
	lastLook  = 30 * time.Second
	// followFor is how long a guest is asked whether a container runs. The longest that
	// shims wait for an image is 10 minutes.
	followFor = 15 * time.Minute
)

// note records a part of a step, which has just ended.
func (s *Service) note(sb *sandbox, name string, began time.Time) {
	now := s.opts.Now()
	sb.update(func(rec *Record) {
		rec.Done = append(slices.Clip(rec.Done), StepTime{Step: name, At: now.Round(0), Took: now.Sub(began)})
	})
}

// Timeline returns where the time of a sandbox's start goes.
func (s *Service) Timeline(ctx context.Context, req *adaptorpb.TimelineRequest) (*timelinepb.Timeline, error) {
	sb := s.find(req.GetId())
	if sb == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", shorten(req.GetId(), 80))
	}
	rec := sb.snapshot()
	return timeline.ToProto(s.timeline(ctx, &rec)), nil
}

// Steps returns the steps that are done, with their parts.
func (r *Record) Steps() (steps []timeline.Step) {
	for _, done := range r.Done {
		steps = append(steps, timeline.Step{Name: done.Step, Where: timeline.Node, Start: done.At.Add(-done.Took), End: done.At})
	}
	return steps
}

func (s *Service) timeline(ctx context.Context, rec *Record) timeline.Timeline {
	own := rec.Steps()
	if rec.State != StateReady {
		return timeline.Timeline{Missing: "the agent in the VM has not answered yet"}.With(own...)
	}
	reply, err := s.opts.Relay.Timeline(ctx, rec.ID)
	if err != nil {
		return timeline.Timeline{Missing: timeline.WhyNot(err, "the agent relay of this node")}.With(own...)
	}
	asked := rec.Asked
	if asked.IsZero() {
		asked = rec.Created
	}
	return timeline.FromProto(reply).Plausible(asked, s.opts.Now()).With(own...)
}

// follow asks the guest for its steps until its first container runs, and passes them to
// the observers. Steps that come later than that are not passed on.
func (s *Service) follow(sb *sandbox) {
	if len(s.opts.Observers) == 0 && s.opts.Cluster == nil || s.enter() != nil {
		return
	}
	go func() {
		defer s.work.Done()
		ctx, cancel := context.WithTimeout(s.calls, followFor)
		defer cancel()
		var observed, attested bool
		var refused string
		for pause := firstLook; poll.Sleep(ctx, pause) == nil; pause = min(2*pause, lastLook) {
			rec := sb.snapshot()
			if rec.State != StateReady {
				return
			}
			attested = attested || s.followAttestation(ctx, sb, &rec, &refused)
			t := s.timeline(ctx, &rec)
			if known := slices.ContainsFunc(t.Steps, func(st timeline.Step) bool { return st.Where == timeline.Guest }); !known {
				return // it is older, or is gone
			}
			if slices.ContainsFunc(t.Steps, func(st timeline.Step) bool { return st.Name == marks.RuntimeStart }) {
				if !observed {
					s.observe(sb, Change{Kind: ChangeTimeline, Timeline: t})
					observed = true
				}
				if attested {
					return
				}
			}
		}
	}()
}

// followAttestation passes on what the pod's key broker says of the VM, and returns whether there is nothing more to come: a VM that
// was refused may be accepted later, when the broker knows it.
func (s *Service) followAttestation(ctx context.Context, sb *sandbox, rec *Record, refused *string) (over bool) {
	resp, err := s.opts.Relay.Attestation(ctx, rec.ID)
	switch {
	case status.Code(err) == codes.Unimplemented: // the VM does not attest
		return true
	case err != nil: // it has no pod yet, or does not answer: the timeline's turn to say so
		return false
	case resp.GetBroker() == "":
		return true
	case !resp.GetAccepted() && resp.GetError() == *refused: // nothing new
		return false
	}
	is := attest.Status{TEE: attest.TEE(resp.GetTee()), Broker: resp.GetBroker(), Accepted: resp.GetAccepted()}
	change := Change{Kind: ChangeAttested, Attestation: is}
	if !is.Accepted {
		*refused = resp.GetError()
		change.Err = errors.New(resp.GetError())
	}
	s.observe(sb, change)
	return is.Accepted
}
