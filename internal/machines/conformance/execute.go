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

	"github.com/outrigger/outrigger/provider/conformance"
)

// Options report the progress of a run. The zero value reports nothing.
type Options struct {
	// Started is called before each check, with its place among all, from 1.
	Started func(check Check, number, of int)
	// Ended is called after each check and its clean-up.
	Ended func(conformance.Result)
}

// Execute runs checks one after the other outside of a Go test. When ctx ends,
// the check at hand fails, deletes what it made, and the rest fails at once.
// The reports of package conformance take the results.
func Execute(ctx context.Context, o Options, checks []Check, subject Subject) []conformance.Result {
	var results []conformance.Result
	for i, check := range checks {
		if o.Started != nil {
			o.Started(check, i+1, len(checks))
		}
		result := check.execute(ctx, subject)
		if o.Ended != nil {
			o.Ended(result)
		}
		results = append(results, result)
	}
	return results
}

func (c Check) execute(ctx context.Context, subject Subject) conformance.Result {
	started := time.Now()
	rec := &recorder{ctx: ctx, status: conformance.Passed}
	rec.protect(func() {
		if err := ctx.Err(); err != nil {
			rec.Fatalf("not run: %v", err)
		}
		c.Run(rec, subject)
	})
	for _, f := range slices.Backward(rec.cleanups) {
		rec.protect(f)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return conformance.Result{
		Check: conformance.Check{Name: c.Name, Contract: c.Contract}, Status: rec.status,
		Messages: slices.Clone(rec.messages), Took: time.Since(started), Left: slices.Clone(rec.left),
	}
}

// recorder is a T that keeps what happens.
type recorder struct {
	ctx context.Context

	mu       sync.Mutex
	status   conformance.Status
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

func (r *recorder) add(status conformance.Status, format string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
	if r.status != conformance.Failed && status != "" {
		r.status = status
	}
}

// Left implements keeper.
func (r *recorder) Left(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, what)
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Logf(format string, args ...any) { r.add("", format, args) }
func (r *recorder) Errorf(format string, args ...any) {
	r.add(conformance.Failed, format, args)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.add(conformance.Failed, format, args)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.add(conformance.Skipped, format, args)
	runtime.Goexit()
}

// keeper is a T that lists what could not be deleted.
type keeper interface{ Left(what string) }
