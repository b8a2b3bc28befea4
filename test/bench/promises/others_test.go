// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"math"
	"testing"
	"time"
)

func TestShareOfTheProcessors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string
		want          float64
	}{
		"idle":                   {"cpu 10 0 10 100 0 0 0 0 0 0\n", "cpu 10 0 10 300 0 0 0 0 0 0\n", 0},
		"all busy":               {"cpu 10 0 10 100 0 0 0 0 0 0\n", "cpu 110 0 60 100 0 0 0 0 0 0\n", 1},
		"waiting for a disk":     {"cpu 0 0 0 0 0 0 0 0 0 0\n", "cpu 0 0 0 0 100 0 0 0 0 0\n", 0},
		"half is stolen":         {"cpu 0 0 0 0 0 0 0 0 0 0\n", "cpu 0 0 0 50 0 0 0 50 0 0\n", 0.5},
		"guests count once":      {"cpu 0 0 0 0 0 0 0 0 0 0\n", "cpu 50 0 0 50 0 0 0 0 50 0\n", 0.5},
		"no time between them":   {"cpu 1 0 0 1 0 0 0 0 0 0\n", "cpu 1 0 0 1 0 0 0 0 0 0\n", 0},
		"lines of one processor": {"cpu 0 0 0 0 0 0 0 0\ncpu0 9 9 9 9 9 9 9 9\n", "cpu 1 1 1 0 0 1 0 0\ncpu0 9 9 9 9 9 9 9 9\n", 1},
	} {
		before, err := parseTicks(test.before)
		if err != nil {
			t.Fatal(err)
		}
		after, err := parseTicks(test.after)
		if err != nil {
			t.Fatal(err)
		}
		if got := before.share(after); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7 8\n", "cpu 1 2 3\n", "cpu 1 2 3 x 5 6 7 8\n"} {
		if _, err := parseTicks(bad); err == nil {
			t.Errorf("%q is taken for the times of all processors", bad)
		}
	}
	if share, err := Others(time.Nanosecond); err != nil || share < 0 || share > 1 {
		t.Errorf("this machine: %v, %v", share, err)
	}
}
