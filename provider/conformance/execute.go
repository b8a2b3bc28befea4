// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/provider/conformance/checkrun"
)

// Status is how a check ended.
type Status string

// Statuses.
const (
	Passed  Status = checkrun.Passed
	Failed  Status = checkrun.Failed
	Skipped Status = checkrun.Skipped
)

// Result is how one check ended.
type Result struct {
	Check
	Status Status
	// Messages are what it said, in order: errors, the reason of a skip, notes.
	Messages []string
	Took     time.Duration
	// Left is what the check could not delete: somebody has to.
	Left []string
}

// Options report a run while it goes on. The zero value tells nothing.
type Options struct {
	// Started is called before each check, with its place among all, from 1.
	Started func(check Check, number, of int)
	// Ended is called after each check and its clean-up.
	Ended func(Result)
}

// Execute runs checks one after the other outside of a Go test, as a program
// does. When ctx ends, the check at hand fails, deletes what it made, and the
// rest fails at once. A panic of the provider fails its check.
func Execute(ctx context.Context, checks []Check, open func(T) Subject) []Result {
	return ExecuteWith(ctx, Options{}, checks, open)
}

// ExecuteWith is Execute with options.
func ExecuteWith(ctx context.Context, options Options, checks []Check, open func(T) Subject) []Result {
	var results []Result
	for i, check := range checks {
		if options.Started != nil {
			options.Started(check, i+1, len(checks))
		}
		outcome := checkrun.Run(ctx, func(t *checkrun.Recorder) { check.Run(t, open) })
		result := Result{check, Status(outcome.Status), outcome.Messages, outcome.Took, outcome.Left}
		if options.Ended != nil {
			options.Ended(result)
		}
		results = append(results, result)
	}
	return results
}
