// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/guest"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/internal/timeline"
)

// fakeGuest has a clock of its own, which began an hour ago.
type fakeGuest struct {
	guest.GuestService
	agent *fakeAgent
}

var guestBoot = time.Now().Add(-time.Hour)

func (f fakeGuest) Timeline(context.Context, *guest.TimelineRequest) (*guest.TimelineResponse, error) {
	f.agent.mu.Lock()
	defer f.agent.mu.Unlock()
	if f.agent.steps == nil {
		return nil, status.Error(codes.Unimplemented, "no such method")
	}
	return &guest.TimelineResponse{NowNano: int64(time.Since(guestBoot)), Steps: f.agent.steps}, nil
}

func TestTimelineOfASandbox(t *testing.T) {
	c := newChain(t)
	began := time.Now()
	uptime := int64(time.Since(guestBoot))
	c.agent.mu.Lock()
	c.agent.steps = []*timelinepb.Step{{Name: "agent", Where: timeline.Node, StartNano: uptime, EndNano: uptime + int64(time.Millisecond)}}
	c.agent.mu.Unlock()
	if _, err := c.server.Serve(t.Context(), c.request()); err != nil {
		t.Fatal(err)
	}
	reply, err := c.server.Timeline(t.Context(), &pb.TimelineRequest{Id: "sandbox"})
	if err != nil {
		t.Fatal(err)
	}
	got := timeline.FromProto(reply)
	names := []string{}
	for _, s := range got.Steps {
		names = append(names, s.Name)
		if s.Name != "agent" {
			if s.Where != timeline.Node || s.Start.Before(began) || s.End.Before(s.Start) {
				t.Errorf("%+v", s)
			}
			continue
		}
		if off := s.Start.Sub(began).Abs(); s.Where != timeline.Guest || off > got.Uncertainty+time.Second {
			t.Errorf("%+v is %v off, although its clock is known to %v", s, off, got.Uncertainty)
		}
	}
	for _, want := range []string{"await-vm", "tcp-connect", "tls-handshake", "first-reply", "agent"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s among %v", want, names)
		}
	}
	if got.Missing != "" || got.Uncertainty <= 0 || got.Uncertainty > time.Minute {
		t.Errorf("missing %q, uncertainty %v", got.Missing, got.Uncertainty)
	}
}

func TestTimelineOfAnOlderAgent(t *testing.T) {
	c := newChain(t)
	if _, err := c.server.Timeline(t.Context(), &pb.TimelineRequest{Id: "sandbox"}); status.Code(err) != codes.NotFound {
		t.Errorf("error %v", err)
	}
	if _, err := c.server.Serve(t.Context(), c.request()); err != nil {
		t.Fatal(err)
	}
	reply, err := c.server.Timeline(t.Context(), &pb.TimelineRequest{Id: "sandbox"})
	if err != nil || len(reply.Steps) != 4 || !strings.Contains(reply.Missing, "is older than timelines") {
		t.Errorf("%v, %v", reply, err)
	}
}

// TestSessionsAreResumed: after the first connection to a VM the others do without
// certificates and signatures, which emulated guests are slow with.
func TestSessionsAreResumed(t *testing.T) {
	c := newChain(t)
	target, err := newTarget(c.request())
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := target.await(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	conn, err := target.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if state := conn.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState(); !state.DidResume {
		t.Error("the second connection has a handshake of its own")
	}
}
