// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	guestpb "github.com/outrigger/outrigger/internal/protocol/guest"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/internal/timeline/marks"
)

// timelines receives those that observers are told.
type timelines chan adaptor.Change

func (o timelines) Observe(change adaptor.Change) {
	if change.Kind == adaptor.ChangeTimeline {
		o <- change
	}
}

func (s *stand) timeline(id string) timeline.Timeline {
	s.t.Helper()
	reply, err := s.Timeline(s.t.Context(), &adaptorpb.TimelineRequest{Id: id})
	if err != nil {
		s.t.Fatal(err)
	}
	return timeline.FromProto(reply)
}

// step is one of a guest that was taken just now.
func step(name string, ago time.Duration) *timelinepb.Step {
	at := time.Now().Add(-ago).UnixNano()
	return &timelinepb.Step{Name: name, Where: timeline.Guest, StartNano: at, EndNano: at}
}

func TestTimeline(t *testing.T) {
	observer := make(timelines, 1)
	s := newStand(t, func(s *stand) {
		s.opts.Observers = []adaptor.Observer{observer}
		s.relay.TimelineOf = func(string) *timelinepb.Timeline {
			return &timelinepb.Timeline{Steps: []*timelinepb.Step{step(marks.RuntimeStart, 0), step("kernel", 24*time.Hour)}}
		}
	})
	s.create("s1")
	if got := s.timeline("s1"); !strings.Contains(got.Missing, "has not answered yet") || len(got.Steps) != 4 {
		t.Errorf("%+v", got)
	}
	if err := s.start("s1"); err != nil {
		t.Fatal(err)
	}
	s.restart() // the times are in the record, except for that of the last step
	got := s.timeline("s1")
	names := []string{}
	for _, st := range got.Steps {
		names = append(names, st.Name)
		if st.Took() < 0 || st.Took() > patience {
			t.Errorf("%s took %v", st.Name, st.Took())
		}
	}
	want := []string{"inspect-network", "choose-zone", "reserve", "record-intent", "claim", "create-instance", "make-user-data", "provider-call", "tunnel", "connect", "attach-disks", marks.RuntimeStart}
	slices.Sort(want)
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("steps %v, want %v", names, want)
	}
	if !strings.Contains(got.Missing, "1 steps of the guest are not between") {
		t.Errorf("missing %q", got.Missing)
	}
	if _, err := s.Timeline(t.Context(), &adaptorpb.TimelineRequest{Id: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("error %v", err)
	}
	s.run("s2")
	if change := <-observer; change.Sandbox.ID != "s2" || len(change.Timeline.Summary()) != 1 {
		t.Errorf("%+v", change)
	}
}

// attestations receives what brokers said.
type attestations chan adaptor.Change

func (o attestations) Observe(change adaptor.Change) {
	if change.Kind == adaptor.ChangeAttested {
		o <- change
	}
}

// TestAttestationIsFollowed: observers are told that the pod's broker has refused the VM, once, and that it has accepted it later.
func TestAttestationIsFollowed(t *testing.T) {
	observer := make(attestations, 9)
	asked := 0
	s := newStand(t, func(s *stand) {
		s.opts.Observers = []adaptor.Observer{observer}
		s.relay.TimelineOf = func(string) *timelinepb.Timeline {
			return &timelinepb.Timeline{Steps: []*timelinepb.Step{step(marks.RuntimeStart, 0)}}
		}
		s.relay.AttestationOf = func(string) (*guestpb.AttestationResponse, error) {
			asked++
			resp := &guestpb.AttestationResponse{Tee: "tpm", Broker: "https://broker"}
			switch asked {
			case 1:
				return nil, status.Error(codes.FailedPrecondition, "this VM has no pod yet")
			case 2:
				resp.Error = "another initdata"
			default:
				resp.Accepted = true
			}
			return resp, nil
		}
	})
	s.run("s1")
	refused, accepted := <-observer, <-observer
	if refused.Err == nil || refused.Err.Error() != "another initdata" || refused.Attestation.Broker != "https://broker" || refused.Attestation.TEE != attest.TPM {
		t.Errorf("%+v", refused)
	}
	if accepted.Err != nil || !accepted.Attestation.Accepted || accepted.Sandbox.ID != "s1" {
		t.Errorf("%+v", accepted)
	}
}

func TestTimelineWithAnOlderRelay(t *testing.T) {
	s := newStand(t, nil)
	s.run("s1")
	if got := s.timeline("s1"); len(got.Steps) != 12 || got.Missing != "the agent relay of this node is older than timelines, or not Outrigger's" {
		t.Errorf("%+v", got)
	}
}
