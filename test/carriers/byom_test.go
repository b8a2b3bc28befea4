// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"testing"
	"time"

	sim "github.com/outrigger/outrigger/test/cloudsim/byom"
	"github.com/outrigger/outrigger/test/tier"
)

// TestBYOM: a provider in a process of its own is configured with a pool of
// machines as a user would do it.
func TestBYOM(t *testing.T) {
	overCarriers(t, "byom", tier.Checks(), func(t *testing.T) []string {
		// As many that no check waits for a machine to reboot.
		pool := sim.Listen(t, 100, sim.NewKeys(t))
		t.Cleanup(func() {
			for _, wrong := range pool.World.Violations() {
				t.Error(wrong)
			}
			wantSoonNothing(t, pool.Leaks)
		})
		return pool.Env()
	})
}

// wantSoonNothing gives machines the time to reboot.
func wantSoonNothing(t *testing.T, leaks func() ([]string, error)) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if left, err := leaks(); err == nil && len(left) == 0 {
			return
		}
	}
	wantNothing(t, leaks)
}
