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
	// comparisons of the clocks; the best one counts.
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

func (s *sandbox) timeline(ctx context.Context) *timelinepb.Timeline {
	ctx, cancel := context.WithTimeout(ctx, timelineWait)
	defer cancel()
	steps, err := s.askGuest(ctx)
	clock := s.clockOfGuest()
	return timeline.ToProto(timeline.Timeline{
		Steps:       slices.Concat(s.reached, timeline.OfGuest(steps, clock)),
		Uncertainty: clock.Uncertainty, Missing: timeline.WhyNot(err, "the agent in the VM"),
	})
}

func (s *sandbox) askGuest(ctx context.Context) ([]*timelinepb.Step, error) {
	conn, err := s.target.connect(ctx)
	if err != nil {
		return nil, err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	if err := s.compareClocks(ctx, client); err != nil {
		return nil, err
	}
	steps, _, err := timeline.Ask(ctx, guest.NewGuestClient(client))
	return steps, err
}

// compareClocks compares the VM's clock with the node's, once: later the VM may have
// stood still for a while.
func (s *sandbox) compareClocks(ctx context.Context, client *ttrpc.Client) error {
	best := s.clockOfGuest()
	if best.Uncertainty > 0 {
		return nil
	}
	for range comparisons {
		_, clock, err := timeline.Ask(ctx, guest.NewGuestClient(client))
		if err != nil {
			return err
		}
		best = best.Better(clock)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guestClock = best
	return nil
}

func (s *sandbox) clockOfGuest() timeline.Clock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guestClock
}
