// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
)

// clockAgent notes when it is told the time, and answers as it is told.
type clockAgent struct {
	agent.AgentServiceService
	told   chan time.Time
	answer func(call int) error
	calls  int
}

func (a *clockAgent) SetGuestDateTime(_ context.Context, r *agent.SetGuestDateTimeRequest) (*emptypb.Empty, error) {
	a.calls++
	err := a.answer(a.calls)
	a.told <- time.Unix(r.Sec, r.Usec*1000)
	return &emptypb.Empty{}, err
}

// TestClockAfterAStop: a VM that did not answer, or late, may have been stopped. It is
// told the time soon and not with the next period.
func TestClockAfterAStop(t *testing.T) {
	t.Parallel()
	pace := clockPace{period: time.Hour, again: time.Millisecond, late: 50 * time.Millisecond, attempt: 20 * time.Second}
	for name, answer := range map[string]func(call int) error{
		"no answer": func(int) error { return status.Error(codes.Unavailable, "stopped") },
		"late": func(int) error {
			<-time.After(2 * pace.late) // is what is tested
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vm := &clockAgent{told: make(chan time.Time, 100), answer: answer}
			sb := clockSandbox(t, vm)
			sb.clock = pace
			var work sync.WaitGroup
			work.Go(func() { sb.keepClock(0) })
			defer work.Wait()
			defer sb.cancel()
			for range 3 {
				select {
				case told := <-vm.told:
					if off := time.Since(told); off > time.Minute || off < 0 {
						t.Errorf("the VM was told a time that is %v old", off)
					}
				case <-time.After(30 * time.Second):
					t.Fatal("the VM was not told the time again")
				}
			}
		})
	}
	for name, test := range map[string]struct {
		err  error
		took time.Duration
		want time.Duration
	}{
		"all is well": {nil, pace.late / 2, pace.period},
		"failed":      {status.Error(codes.Unavailable, ""), 0, pace.again},
		"late":        {nil, 2 * pace.late, pace.again},
	} {
		if got := pace.next(test.err, test.took); got != test.want {
			t.Errorf("%s: the next call is after %v, want %v", name, got, test.want)
		}
	}
}

// clockSandbox is one whose VM is the agent itself.
func clockSandbox(t *testing.T, vm agent.AgentServiceService) *sandbox {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	agent.RegisterAgentServiceService(server, vm)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(context.Background(), listener)
	t.Cleanup(func() { server.Close() })
	return newSandbox(&pb.ServeRequest{Id: "sandbox"}, &target{address: listener.Addr().String()}, &sync.Mutex{}, slog.New(slog.DiscardHandler))
}
