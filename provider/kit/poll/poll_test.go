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
