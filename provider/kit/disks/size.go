// SPDX-License-Identifier: Apache-2.0

// Package disks is about disks of clouds whose unit is 1 GiB.
package disks

import (
	"fmt"

	"github.com/outrigger/outrigger/provider"
)

// GiB returns how many GiB a disk of at least bytes and, unless that is 0, at most limit bytes has, of which the cloud
// has least to most.
func GiB(bytes, limit, least, most int64) (int64, error) {
	size := bytes >> 30
	if size<<30 < bytes {
		size++
	}
	size = max(size, least)
	switch {
	case size > most:
		return 0, fmt.Errorf("%w: a disk of %d bytes: the cloud has none of more than %d GiB", provider.ErrInvalidArgument, bytes, most)
	case limit != 0 && size<<30 > limit:
		return 0, fmt.Errorf("%w: a disk of %d bytes has %d, which is more than its limit of %d: the cloud's unit is 1 GiB, of which it has at least %d",
			provider.ErrInvalidArgument, bytes, size<<30, limit, max(least, 1))
	}
	return size, nil
}
