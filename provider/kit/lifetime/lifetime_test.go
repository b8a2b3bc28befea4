// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outrigger/outrigger/provider"
)

func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lifetime
		l.End() // nothing is under way
		over := false
		go func() {
			ctx, done := l.Begin(t.Context())
			defer done()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), provider.ErrUnavailable) {
				t.Error(context.Cause(ctx))
			}
			time.Sleep(time.Second)
			over = true
		}()
		synctest.Wait()
		l.End()
		if !over {
			t.Error("End did not wait")
		}
		ctx, done := l.Begin(t.Context())
		if ctx.Err() != nil {
			t.Errorf("a call after the end: %v", ctx.Err())
		}
		done()
		if ctx.Err() == nil {
			t.Error("the context of a call that is over goes on")
		}
		caller, cancel := context.WithCancel(t.Context())
		ctx, done = l.Begin(caller)
		defer done()
		cancel()
		synctest.Wait()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("the caller's context has ended: %v", ctx.Err())
		}
	})
}

func TestOutlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if v, err := Outlive(t.Context(), func() (int, error) { return 1, nil }); v != 1 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wentOn := make(chan bool, 1)
		_, err := Outlive(ctx, func() (int, error) { time.Sleep(time.Minute); wentOn <- true; return 1, nil })
		if !errors.Is(err, provider.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-wentOn
	})
}
