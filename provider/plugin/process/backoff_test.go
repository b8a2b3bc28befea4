// SPDX-License-Identifier: Apache-2.0

package process

import (
	"slices"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	var b backoff
	var got []time.Duration
	for range 12 {
		got = append(got, b.next(time.Second))
	}
	want := []time.Duration{0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000}
	for i := range want {
		want[i] *= time.Millisecond
	}
	if !slices.Equal(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
	if after := b.next(stable); after != 0 {
		t.Errorf("%s after a stable minute", after)
	}
}
