// SPDX-License-Identifier: Apache-2.0

package process

import "time"

const (
	firstDelay = 100 * time.Millisecond
	lastDelay  = 30 * time.Second
	// stable is how long a plugin must run to be trusted again.
	stable = time.Minute
)

// backoff says how long to wait before the next start.
type backoff struct{ delay time.Duration }

// next returns the delay after a process that ran that long: none at first.
func (b *backoff) next(ran time.Duration) time.Duration {
	if ran >= stable {
		b.delay = 0
	}
	now := b.delay
	b.delay = min(max(2*now, firstDelay), lastDelay)
	return now
}
