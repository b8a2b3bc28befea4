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

// clockPeriod is how often a VM is told the time, which is how long its clock may
// be wrong after the VM was stopped, or moved to another host.
const clockPeriod = 30 * time.Second

// keepClock tells the VM the node's time, with any shim: some VMs have no source
// of time that goes on while they are stopped.
func (s *sandbox) keepClock() {
	// Not all VMs of a node at once. One that has just booted knows the time.
	wait := time.NewTimer(time.Duration(rand.Int64N(int64(clockPeriod))))
	defer wait.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-wait.C:
		}
		wait.Reset(clockPeriod)
		err := s.setClock(s.ctx)
		if status.Code(err) == codes.Unimplemented {
			s.log.Debug("the agent in the VM cannot set the clock", "error", err)
			return
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Debug("could not tell the VM the time", "error", err)
		}
	}
}

func (s *sandbox) setClock(ctx context.Context) error {
	conn, err := s.target.connect(ctx)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, healthCheck)
	defer cancel()
	now := time.Now()
	_, err = agent.NewAgentServiceClient(client).SetGuestDateTime(ctx, &agent.SetGuestDateTimeRequest{Sec: now.Unix(), Usec: int64(now.Nanosecond() / 1000)})
	return err
}
