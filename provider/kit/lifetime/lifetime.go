// SPDX-License-Identifier: Apache-2.0

// Package lifetime is about calls that end before or after their callers' contexts do.
package lifetime

import (
	"context"
	"fmt"
	"sync"

	"github.com/outrigger/outrigger/provider"
)

// Lifetime is that of a provider: calls that are under way end when it is closed. The zero
// value is ready.
type Lifetime struct {
	mu    sync.Mutex
	ctx   context.Context
	end   context.CancelCauseFunc
	calls *sync.WaitGroup
}

var errEnded = fmt.Errorf("%w: the provider was torn down", provider.ErrUnavailable)

// Begin returns a context for a call, which ends with ctx and with the lifetime, and a function to be
// called when the call is over.
func (l *Lifetime) Begin(ctx context.Context) (context.Context, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.end = context.WithCancelCause(context.Background())
		l.calls = new(sync.WaitGroup)
	}
	l.calls.Add(1)
	calls := l.calls
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(errEnded) })
	return ctx, func() {
		stop()
		cancel(nil)
		calls.Done()
	}
}

// End ends the calls that are under way and waits for them. Calls that begin later are part
// of another lifetime.
func (l *Lifetime) End() {
	l.mu.Lock()
	calls, end := l.calls, l.end
	l.ctx = nil
	l.mu.Unlock()
	if calls != nil {
		end(errEnded)
		calls.Wait()
	}
}

// Outlive returns what call returns, or [provider.ErrUnavailable] as soon as ctx ends: then call goes on alone. It
// is for calls that take no context, and for those whose outcome somebody has to know.
func Outlive[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := call()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: %w", provider.ErrUnavailable, context.Cause(ctx))
	}
}
