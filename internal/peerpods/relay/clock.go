// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// clockPace is how often a VM is told the time.
type clockPace struct {
	// period is how long the clock of a VM may be wrong after a stop that nobody
	// noticed.
	period time.Duration
	// again is the pause after a call that failed or was late: the VM may have been
	// stopped meanwhile, and goes on with the time of then.
	again time.Duration
	// late is how long no call takes that a running VM answers, and attempt bounds one.
	late, attempt time.Duration
}

var usualClockPace = clockPace{period: 10 * time.Second, again: time.Second, late: time.Second, attempt: 5 * time.Second}

// keepClock tells the VM the node's time, with any shim: some VMs have no source
// of time that goes on while they are stopped.
func (s *sandbox) keepClock(first time.Duration) {
	wait := time.NewTimer(first)
	defer wait.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-wait.C:
		}
		began := time.Now()
		err := s.setClock(s.ctx)
		if status.Code(err) == codes.Unimplemented {
			s.log.Debug("the agent in the VM cannot set the clock", "error", err)
			return
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Debug("could not tell the VM the time", "error", err)
		}
		wait.Reset(s.clock.next(err, time.Since(began)))
	}
}

// first is when a VM that has just booted, and knows the time, is told it: not all
// VMs of a node at once.
func (p clockPace) first() time.Duration { return time.Duration(rand.Int64N(int64(p.period))) }

// next is how long to wait after a call that took that long.
func (p clockPace) next(err error, took time.Duration) time.Duration {
	if err != nil || took > p.late {
		return p.again
	}
	return p.period
}

func (s *sandbox) setClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.clock.attempt)
	defer cancel()
	conn, err := s.target.connect(ctx)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	now := time.Now()
	_, err = agent.NewAgentServiceClient(client).SetGuestDateTime(ctx, &agent.SetGuestDateTimeRequest{Sec: now.Unix(), Usec: int64(now.Nanosecond() / 1000)})
	return err
}
