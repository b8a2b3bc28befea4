// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"slices"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/guest"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/internal/timeline"
)

const (
	// timelineWait bounds the wait for a guest's steps.
	timelineWait = 5 * time.Second
	// comparisons of the clocks when a VM has just answered; the best one counts.
	comparisons = 3
)

// Timeline implements the control service.
func (s *Server) Timeline(ctx context.Context, request *pb.TimelineRequest) (*timelinepb.Timeline, error) {
	s.mu.Lock()
	sb := s.sandboxes[request.Id]
	s.mu.Unlock()
	if sb == nil || !sb.isOpen() {
		return nil, status.Error(codes.NotFound, "the relay serves no such sandbox")
	}
	return sb.timeline(ctx), nil
}

// compareClocks compares the VM's clock with the node's, over the connection on which
// the agent has just replied: later the VM may have stood still for a while.
func (s *sandbox) compareClocks(client *ttrpc.Client) {
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.ctx, timelineWait)
	defer cancel()
	var best timeline.Clock
	for range comparisons {
		_, clock, err := timeline.Ask(ctx, guest.NewGuestClient(client))
		if err != nil {
			break // said when somebody asks
		}
		best = best.Better(clock)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guestClock = best
}

func (s *sandbox) timeline(ctx context.Context) *timelinepb.Timeline {
	ctx, cancel := context.WithTimeout(ctx, timelineWait)
	defer cancel()
	steps, clock, err := s.askGuest(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guestClock.Uncertainty > 0 {
		clock = s.guestClock
	}
	return timeline.ToProto(timeline.Timeline{
		Steps:       slices.Concat(s.reached, timeline.OfGuest(steps, clock)),
		Uncertainty: clock.Uncertainty, Missing: timeline.WhyNot(err, "the agent in the VM"),
	})
}

func (s *sandbox) askGuest(ctx context.Context) ([]*timelinepb.Step, timeline.Clock, error) {
	conn, err := s.target.connect(ctx)
	if err != nil {
		return nil, timeline.Clock{}, err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	return timeline.Ask(ctx, guest.NewGuestClient(client))
}
