// SPDX-License-Identifier: Apache-2.0

// Package poll asks again until the answer is there.
package poll

import (
	"context"
	"time"
)

// Pace is how long to wait between two questions: First, then twice as long
// each time up to Max.
type Pace struct{ First, Max time.Duration }

// Until calls ask until it returns true or an error, or ctx ends; then the
// error is the context's cause.
func (p Pace) Until(ctx context.Context, ask func() (bool, error)) error {
	for wait := p.First; ; wait = min(2*wait, p.Max) {
		done, err := ask()
		if done || err != nil {
			return err
		}
		if err := Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Sleep waits for d or the end of ctx, whose cause is then the error.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
