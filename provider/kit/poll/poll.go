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

// Ticker paces looks at something that is about to change, or to be seen.
type Ticker struct {
	wait, max, grace time.Duration
	looks            int
}

// Ticker returns one that waits as p says. A look later than grace after its time counts alone; 0 means none does.
func (p Pace) Ticker(grace time.Duration) *Ticker {
	return &Ticker{wait: p.First, max: p.Max, grace: grace}
}

// Wait pauses, each time longer. The error is the context's cause.
func (t *Ticker) Wait(ctx context.Context) error {
	wait := t.wait
	t.wait = min(2*wait, t.max)
	t.looks++
	return Sleep(ctx, wait)
}

// fewLooks are too few to say that something is not there: on a slow machine the first
// may take all of the time.
const fewLooks = 5

// Over reports whether what should have been seen by then is not there.
func (t *Ticker) Over(then time.Time) bool {
	late := time.Since(then)
	return late > 0 && (t.looks >= fewLooks || t.grace > 0 && late > t.grace)
}

// Look calls ask until it returns true or an error, or what it looks for should have been seen by then.
func (t *Ticker) Look(ctx context.Context, then time.Time, ask func() (bool, error)) (seen bool, err error) {
	for {
		if seen, err = ask(); seen || err != nil || t.Over(then) {
			return seen, err
		}
		if err := t.Wait(ctx); err != nil {
			return false, err
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
