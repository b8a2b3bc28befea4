// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"
)

// scenario is one case of the suite.
type scenario struct {
	name string
	// vms is how many of its VMs run at a time; 0 is as many as may.
	vms int
	// variant: another case has the same promise, or test/recovery and test/run, so that `make test` leaves it to
	// `make test-all` and `make test-e2e`.
	variant bool
	// alone: it replaces daemons, which would disturb others.
	alone bool
	play  func(t *testing.T, s *suite)
}

// Cases that are alone come first, the others run together afterwards.
var cases = slices.Concat(lifecycle, basic, features, sizing, storage, volumes, pools, confidential, attested)
