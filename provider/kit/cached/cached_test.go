// SPDX-License-Identifier: Apache-2.0

package cached

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outrigger/outrigger/provider"
)

func TestGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Values[int]
		asked := 0
		ask := func() (int, time.Time, error) { asked++; return asked, time.Now().Add(time.Hour), nil }
		want := func(name string, want int) {
			t.Helper()
			if got, err := c.Get(t.Context(), name, ask); got != want || err != nil {
				t.Errorf("%s: %d, %v, want %d", name, got, err, want)
			}
		}
		want("a", 1)
		want("a", 1)
		want("b", 2)
		time.Sleep(time.Hour)
		want("a", 3)
		c.Forget("a", func(v int) bool { return v == 1 }) // somebody has another already
		want("a", 3)
		c.Forget("a", func(v int) bool { return v == 3 })
		want("a", 4)
		if v, err := c.Get(t.Context(), "ever", func() (int, time.Time, error) { return 7, time.Time{}, nil }); v != 7 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
		time.Sleep(1000 * time.Hour)
		want("ever", 7)
		broken := errors.New("broken")
		for range 2 {
			if _, err := c.Get(t.Context(), "error", func() (int, time.Time, error) { asked++; return 0, time.Time{}, broken }); !errors.Is(err, broken) {
				t.Error(err)
			}
		}
		want("error", 7) // two errors were asked for, and not kept
	})
}

// TestOthersWait: one asks, the others get the same, each no later than its context ends.
func TestOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Values[int]
		broken := errors.New("broken")
		asked := 0
		ask := func() (int, time.Time, error) {
			asked++
			time.Sleep(time.Minute)
			return 0, time.Time{}, broken
		}
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if _, err := c.Get(t.Context(), "", ask); !errors.Is(err, broken) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Get(hasty, "", ask); !errors.Is(err, provider.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		group.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// TestWhoAsksMayGiveUp: then another asks.
func TestWhoAsksMayGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Values[int]
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() {
			_, err := c.Get(ctx, "", func() (int, time.Time, error) { <-ctx.Done(); return 0, time.Time{}, ctx.Err() })
			first <- err
		}()
		synctest.Wait()
		second := make(chan int)
		go func() {
			v, _ := c.Get(t.Context(), "", func() (int, time.Time, error) { return 2, time.Time{}, nil })
			second <- v
		}()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if v := <-second; v != 2 {
			t.Errorf("%d", v)
		}
	})
}
