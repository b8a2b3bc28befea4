// SPDX-License-Identifier: Apache-2.0

package poll_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// TestCausesKeepTheClass: a cause of somebody's own does not hide that the context ended.
func TestCausesKeepTheClass(t *testing.T) {
	cause := errors.New("the daemon stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := poll.Sleep(ctx, time.Hour); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want the cause and context.Canceled", err)
	}
}
