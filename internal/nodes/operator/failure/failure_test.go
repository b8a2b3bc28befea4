// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	w := &Window{Threshold: 120 * time.Second, Stale: 150 * time.Second}
	for i, step := range []struct {
		clear bool
		at    int
		want  bool
	}{
		{at: 0}, {at: 100}, {at: 119}, {at: 120, want: true}, {at: 121, want: true},
		{clear: true}, {at: 130}, {at: 249}, {at: 250, want: true},
		// The last failure is too long ago.
		{at: 401}, {at: 520}, {at: 521, want: true}, {at: 671, want: true},
	} {
		if step.clear {
			w.Clear()
		} else if got := w.Observe(at(step.at)); got != step.want {
			t.Errorf("step %d: at %d s %v; want %v", i, step.at, got, step.want)
		}
	}
	never := &Window{Threshold: time.Second}
	never.Observe(at(0))
	if !never.Observe(at(1e6)) {
		t.Error("a window that never is stale began again")
	}
	if !(&Window{}).Observe(at(0)) {
		t.Error("without a threshold a failure counts at once")
	}
}

func TestTerminal(t *testing.T) {
	err := Terminal(errors.New("bad"))
	if err.Error() != "terminal error: bad" || !IsTerminal(fmt.Errorf("x: %w", err)) {
		t.Errorf("%v, %v", err, IsTerminal(err))
	}
	if IsTerminal(errors.New("x")) {
		t.Error("any error is terminal")
	}
}

func TestRetry(t *testing.T) {
	for threshold, want := range map[time.Duration]time.Duration{2 * time.Minute: 30 * time.Second, time.Second: 250 * time.Millisecond, 0: 100 * time.Millisecond} {
		if got := (&Window{Threshold: threshold}).Retry(); got != want {
			t.Errorf("%s: %s; want %s", threshold, got, want)
		}
	}
}

// TestConflict: whoever is never alone tries less and less often, and says so in the end.
func TestConflict(t *testing.T) {
	w := &Window{Threshold: time.Minute}
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if again, counts := w.Conflict(now); again != want || counts {
			t.Errorf("conflict %d: again in %s, counts %t", i, again, counts)
		}
	}
	for range 100 {
		if again, _ := w.Conflict(now); again > w.Retry() {
			t.Fatalf("again in %s", again)
		}
	}
	if _, counts := w.Conflict(now.Add(time.Minute)); !counts {
		t.Error("it does not count after the threshold")
	}
	w.Clear()
	if again, counts := w.Conflict(now.Add(time.Hour)); again != 200*time.Millisecond || counts {
		t.Errorf("after a success: again in %s, counts %t", again, counts)
	}
}
