// SPDX-License-Identifier: Apache-2.0

package dockerd

import (
	"context"
	"time"
)

// contextFor outlives a test's own context: it is for looking at what is left
// when the test has ended.
func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
