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
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// clockPace says how often a VM's clock is set.
type clockPace struct {
	// period is how long the clock of a VM may be wrong after a stop that nobody
	// noticed.
	period time.Duration
	// again is the pause after a call that failed or was late: the VM may have been
	// paused meanwhile, so its clock may be behind.
	again time.Duration
	// late is longer than any call to a running VM takes; attempt bounds one call.
	late, attempt time.Duration
}

var usualClockPace = clockPace{period: 10 * time.Second, again: time.Second, late: time.Second, attempt: 5 * time.Second}

// keepClock sets the VM's clock to the node's time, with any shim: some VMs have
// no clock that runs while they are paused.
func (s *sandbox) keepClock(first time.Duration) {
	for wait := first; poll.Sleep(s.ctx, wait) == nil; {
		began := time.Now()
		err := s.setClock(s.ctx)
		if status.Code(err) == codes.Unimplemented {
			s.log.Debug("the agent in the VM cannot set the clock", "error", err)
			return
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Debug("could not set the VM's clock", "error", err)
		}
		wait = s.clock.next(err, time.Since(began))
	}
}

// first returns when the clock of a VM that has just booted, and so is right, is
// set for the first time: spread out, so that not all VMs of a node are called at
// once.
func (p clockPace) first() time.Duration { return time.Duration(rand.Int64N(int64(p.period))) }

// next returns how long to wait after a call that took that long.
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
