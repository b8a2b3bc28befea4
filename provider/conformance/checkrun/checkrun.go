// SPDX-License-Identifier: Apache-2.0

// Package checkrun runs a check of a conformance kit outside of a Go test, and keeps what it
// says.
package checkrun

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// How a check can end.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// Outcome is how a check ended.
type Outcome struct {
	Status string
	// Messages are what it said, in order: errors, the reason of a skip, notes.
	Messages []string
	// Left is what it could not delete.
	Left []string
	Took time.Duration
}

// Run runs a check, and then its clean-ups. When ctx has ended the check fails at once. A panic
// fails it.
func Run(ctx context.Context, check func(*Recorder)) Outcome {
	began := time.Now()
	r := &Recorder{ctx: ctx, outcome: Outcome{Status: Passed}}
	r.protect(func() {
		if err := ctx.Err(); err != nil {
			r.Fatalf("not run: %v", err)
		}
		check(r)
	})
	for _, f := range slices.Backward(r.cleanups) {
		r.protect(f)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Copies: what ignores its context may still write.
	return Outcome{r.outcome.Status, slices.Clone(r.outcome.Messages), slices.Clone(r.outcome.Left), time.Since(began)}
}

// Recorder is what a check needs of a *testing.T, and keeps what happens.
type Recorder struct {
	ctx      context.Context
	cleanups []func()

	mu      sync.Mutex
	outcome Outcome
}

// protect runs f on a goroutine of its own, which Fatalf and Skipf end, and
// waits for it.
func (r *Recorder) protect(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if reason := recover(); reason != nil {
				r.Errorf("panic: %v\n%s", reason, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

func (r *Recorder) add(status, format string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcome.Messages = append(r.outcome.Messages, fmt.Sprintf(format, args...))
	if r.outcome.Status != Failed && status != "" {
		r.outcome.Status = status
	}
}

// Left notes what could not be deleted.
func (r *Recorder) Left(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.outcome.Left, what) {
		r.outcome.Left = append(r.outcome.Left, what)
	}
}

// Helper does nothing: messages have no lines.
func (r *Recorder) Helper() {}

// Context returns that of the run.
func (r *Recorder) Context() context.Context { return r.ctx }

// Cleanup has f called at the end, the last one first.
func (r *Recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Logf notes something.
func (r *Recorder) Logf(format string, args ...any) { r.add("", format, args) }

// Errorf fails the check, which goes on.
func (r *Recorder) Errorf(format string, args ...any) { r.add(Failed, format, args) }

// Fatalf fails and ends the check.
func (r *Recorder) Fatalf(format string, args ...any) {
	r.add(Failed, format, args)
	runtime.Goexit()
}

// Skipf ends the check, which cannot be done.
func (r *Recorder) Skipf(format string, args ...any) {
	r.add(Skipped, format, args)
	runtime.Goexit()
}
