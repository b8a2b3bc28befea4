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
}

// Execute runs checks one after the other outside of a Go test, as a program
// does. When ctx ends, the check at hand fails, deletes what it made, and the
// rest fails at once. A panic of the provider fails its check.
func Execute(ctx context.Context, checks []Check, open func(T) Subject) []Result {
	var results []Result
	for _, check := range checks {
		started := time.Now()
		rec := &recorder{ctx: ctx, status: Passed}
		rec.protect(func() {
			if err := ctx.Err(); err != nil {
				rec.Fatalf("not run: %v", err)
			}
			check.Run(rec, open)
		})
		rec.cleanUp()
		results = append(results, Result{check, rec.status, rec.messages, time.Since(started)})
	}
	return results
}

// recorder is a T that keeps what happens.
type recorder struct {
	ctx context.Context

	mu       sync.Mutex
	status   Status
	messages []string
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
