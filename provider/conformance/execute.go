// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Status is how a check ended.
type Status string

// Statuses.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
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
		result := check.execute(ctx, open)
		if options.Ended != nil {
			options.Ended(result)
		}
		results = append(results, result)
	}
	return results
}

func (c Check) execute(ctx context.Context, open func(T) Subject) Result {
	started := time.Now()
	rec := &recorder{ctx: ctx, status: Passed}
	rec.protect(func() {
		if err := ctx.Err(); err != nil {
			rec.Fatalf("not run: %v", err)
		}
		c.Run(rec, open)
	})
	rec.cleanUp()
	return rec.result(c, time.Since(started))
}

// recorder is a T that keeps what happens.
type recorder struct {
	ctx context.Context

	mu       sync.Mutex
	status   Status
	messages []string
	left     []string
	cleanups []func()
}

// protect runs f on a goroutine of its own, which Fatalf and Skipf end, and
// waits for it.
func (r *recorder) protect(f func()) {
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

func (r *recorder) cleanUp() {
	for _, f := range slices.Backward(r.cleanups) {
		r.protect(f)
	}
}

func (r *recorder) add(status Status, format string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
	if r.status != Failed && status != "" {
		r.status = status
	}
}

// result returns a copy: a provider that ignores its context may still write.
func (r *recorder) result(check Check, took time.Duration) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Result{check, r.status, slices.Clone(r.messages), took, slices.Clone(r.left)}
}

// Left implements keeper.
func (r *recorder) Left(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.left, what) {
		r.left = append(r.left, what)
	}
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Logf(format string, args ...any)   { r.add("", format, args) }
func (r *recorder) Errorf(format string, args ...any) { r.add(Failed, format, args) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.add(Failed, format, args)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.add(Skipped, format, args)
	runtime.Goexit()
}
