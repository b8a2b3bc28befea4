// SPDX-License-Identifier: Apache-2.0

package poll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, asked := time.Now(), 0
		err := Pace{time.Second, 4 * time.Second}.Until(t.Context(), func() (bool, error) {
			asked++
			return asked == 5, nil
		})
		if took := time.Since(begin); err != nil || took != (1+2+4+4)*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		broken := errors.New("broken")
		if err := (Pace{time.Second, time.Second}).Until(t.Context(), func() (bool, error) { return false, broken }); !errors.Is(err, broken) {
			t.Errorf("%v, want %v", err, broken)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err = Pace{time.Second, time.Minute}.Until(ctx, func() (bool, error) { return false, nil })
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != 21*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := Pace{time.Second, 4 * time.Second}
		looks := 0
		look := func(n int) func() (bool, error) { return func() (bool, error) { looks++; return looks == n, nil } }
		if seen, err := pace.Ticker(0).Look(t.Context(), time.Now().Add(time.Minute), look(3)); !seen || err != nil || looks != 3 {
			t.Errorf("%t, %v after %d looks", seen, err, looks)
		}
		// The time is over at once, but one look may have taken all of it.
		looks = 0
		if seen, err := pace.Ticker(0).Look(t.Context(), time.Now().Add(-time.Second), look(99)); seen || err != nil || looks != fewLooks+1 {
			t.Errorf("%t, %v after %d looks", seen, err, looks)
		}
		// It was long ago.
		looks = 0
		if seen, err := pace.Ticker(time.Hour).Look(t.Context(), time.Now().Add(-2*time.Hour), look(99)); seen || err != nil || looks != 1 {
			t.Errorf("%t, %v after %d looks", seen, err, looks)
		}
		broken := errors.New("broken")
		if _, err := pace.Ticker(0).Look(t.Context(), time.Now(), func() (bool, error) { return false, broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := pace.Ticker(0).Look(ctx, time.Now().Add(time.Hour), func() (bool, error) { return false, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
