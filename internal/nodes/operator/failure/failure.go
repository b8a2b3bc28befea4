// SPDX-License-Identifier: Apache-2.0

// Package failure decides when a failure is reported: at once if a retry cannot
// help, else only when it has lasted.
package failure

import (
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Terminal marks an error that only a change of an object ends. Its text begins
// with "terminal error: ".
func Terminal(err error) error { return reconcile.TerminalError(err) }

// IsTerminal reports whether an error was marked.
func IsTerminal(err error) bool { return errors.Is(err, reconcile.TerminalError(nil)) }

// Window is how long something has failed without a success in between. It is for one
// goroutine.
type Window struct {
	// Threshold is how long a failure lasts before it counts.
	Threshold time.Duration
	// Stale is after what time without a failure the next one begins a new
	// window, for work that is not repeated by itself; 0 is never.
	Stale time.Duration

	since, last time.Time
	conflicts   int
}

// Observe records a failure and reports whether it counts.
func (w *Window) Observe(now time.Time) bool {
	if w.since.IsZero() || w.Stale > 0 && now.Sub(w.last) > w.Stale {
		w.since = now
	}
	w.last = now
	return now.Sub(w.since) >= w.Threshold
}

// Clear records a success.
func (w *Window) Clear() {
	w.since, w.last, w.conflicts = time.Time{}, time.Time{}, 0
}

// Again is how soon to look again when somebody else has just written, or a
// cache has not seen our own write yet.
const Again = 200 * time.Millisecond

// Conflict records a conflicting write, and returns a growing backoff and whether
// it has lasted so long that it counts as a failure.
func (w *Window) Conflict(now time.Time) (again time.Duration, counts bool) {
	counts = w.Observe(now)
	again = min(Again<<min(w.conflicts, 10), w.Retry())
	w.conflicts++
	return again, counts
}

// Retry returns the longest time between two attempts that still shows soon after the
// threshold that a failure lasts.
func (w *Window) Retry() time.Duration {
	return min(max(w.Threshold/4, 100*time.Millisecond), 30*time.Second)
}

// Faults collects what is wrong with an input.
type Faults []error

// AddIf adds a fault if there is one.
func (f *Faults) AddIf(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}
