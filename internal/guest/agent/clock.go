// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// clockNoise is the smallest difference that is corrected: the call itself
	// takes a part of it.
	clockNoise = 20 * time.Millisecond
	// clockStep is the smallest difference that is corrected at once. The
	// kernel corrects smaller ones gradually, up to half a second
	// (adjtimex(2)), so that time does not go backwards.
	clockStep = 400 * time.Millisecond
)

// SetGuestDateTime sets the VM's clock: a VM that was stopped for a while has not
// noticed, and nothing else in it knows the time.
func (a *Agent) SetGuestDateTime(_ context.Context, req *agent.SetGuestDateTimeRequest) (*emptypb.Empty, error) {
	if req.GetSec() <= 0 || req.GetUsec() < 0 || req.GetUsec() >= 1e6 {
		return nil, status.Errorf(codes.InvalidArgument, "%d s and %d µs are not a time", req.GetSec(), req.GetUsec())
	}
	want := time.Unix(req.GetSec(), req.GetUsec()*1000)
	off := time.Until(want)
	var err error
	switch {
	case off.Abs() < clockNoise:
	case off.Abs() < clockStep:
		_, err = unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_OFFSET_SINGLESHOT, Offset: off.Microseconds()})
	default:
		now := unix.NsecToTimespec(want.UnixNano())
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &now)
		a.log.Info("the clock was set", "by", off)
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "set the clock by %v: %v", off, err)
	}
	return &emptypb.Empty{}, nil
}
