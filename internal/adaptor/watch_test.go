// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
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
