// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"errors"
	"math"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

func TestGiB(t *testing.T) {
	for _, c := range []struct{ bytes, limit, least, most, want int64 }{
		{1, 0, 0, 100, 1},
		{1 << 30, 1 << 30, 0, 100, 1},
		{1<<30 + 1, 0, 0, 100, 2},
		{1<<30 + 1, 1<<31 - 1, 0, 100, 0}, // no whole GiB is between
		{1, 0, 20, 100, 20},
		{1, 19 << 30, 20, 100, 0},
		{100 << 30, 0, 0, 100, 100},
		{100<<30 + 1, 0, 0, 100, 0},
		{math.MaxInt64, 0, 0, 1 << 31, 0},
	} {
		got, err := GiB(c.bytes, c.limit, c.least, c.most)
		if got != c.want || (err == nil) != (c.want != 0) || err != nil && !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}
