// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// A guest that panics at its boot is not waited for until ProxyTimeout.
func TestVMThatEndsIsNotWaitedFor(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.opts.WatchInterval = time.Millisecond
		s.opts.ProxyTimeout = time.Hour
		s.relay.ServeErr = func(ctx context.Context, _ *relaypb.ServeRequest) error {
			if err := s.cloud.PowerOff(ctx, s.instances()[0].ID); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
	})
	s.create("e1")
	err := s.start("e1")
	wantCode(t, err, codes.Unavailable)
	if err == nil || !strings.Contains(err.Error(), "VM has ended") || !strings.Contains(err.Error(), "console ends with") {
		t.Errorf("the error says %v", err)
	}
	s.stop("e1")
	s.wantNothing()
}

// onNode is a cloud whose VMs are on a bridge of this node.
type onNode struct{ *fake.Cloud }

func (onNode) NodeAddress(context.Context) (netip.Addr, error) {
	return netip.MustParseAddr("198.18.0.1"), nil
}

var _ provider.NodeAddresser = onNode{}

// TestGuestThatPanicsIsNoticed: the hypervisor shows at once that a guest has ended, which
// a shim learned from an agent without an answer after 43 s. The channel is closed, and the
// relay is not asked to dial the dead.
func TestGuestThatPanicsIsNoticed(t *testing.T) {
	var ended atomic.Bool
	s := newStand(t, func(s *stand) {
		s.relay.ServeErr = func(_ context.Context, r *relaypb.ServeRequest) error {
			if ended.Load() {
				t.Errorf("%s is dialled again", r.GetId())
			}
			return nil
		}
		s.opts.Provider = onNode{s.cloud}
		s.opts.EndedInterval = time.Millisecond
		s.opts.SweepInterval = time.Millisecond
	})
	for _, id := range []string{"p1", "p2"} {
		s.create(id)
		if err := s.start(id); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.relay.Served(); n != 2 {
		t.Fatalf("%d channels", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	for _, i := range s.instances() {
		if i.Key == "p1" {
			ended.Store(true)
			if err := s.cloud.PowerOff(t.Context(), i.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.eventually("the channel of the one that ended is closed", func() bool { return s.relay.Served() == 1 })
	cancel()
	<-done
	s.stop("p1")
	s.stop("p2")
	s.wantNothing()
}
