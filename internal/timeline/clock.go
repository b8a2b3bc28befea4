// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/guest"
	pb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/internal/redact"
)

// Clock is what the node knows of a guest's clock: the node's time is the guest's
// plus Offset, to within Uncertainty. Without a comparison Uncertainty is 0.
type Clock struct{ Offset, Uncertainty time.Duration }

// compare returns what one call says of the clock: the guest read its own between
// the call's two ends (as NTP has it, RFC 5905, section 8).
func compare(began, ended time.Time, guestNow int64) Clock {
	half := ended.Sub(began) / 2
	middle := began.Add(half)
	return Clock{time.Duration(middle.UnixNano() - guestNow), max(half, 1)}
}

// Better returns the clock that is known more exactly.
func (c Clock) Better(other Clock) Clock {
	if c.Uncertainty == 0 || other.Uncertainty > 0 && other.Uncertainty < c.Uncertainty {
		return other
	}
	return c
}

// Ask asks a guest for its steps and compares the clocks.
func Ask(ctx context.Context, client guest.GuestService) ([]*pb.Step, Clock, error) {
	began := time.Now()
	resp, err := client.Timeline(ctx, &guest.TimelineRequest{})
	if err != nil {
		return nil, Clock{}, err
	}
	return resp.GetSteps(), compare(began, time.Now(), resp.GetNowNano()), nil
}

// WhyNot says why there are no steps of a guest, or of a relay, that has returned err.
func WhyNot(err error, who string) string {
	switch status.Code(err) {
	case codes.OK:
		return ""
	case codes.Unimplemented:
		return who + " is older than timelines, or not Outrigger's"
	}
	return who + " does not answer: " + redact.Line(err.Error())
}
