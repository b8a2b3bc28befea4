// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"testing"

	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
	"github.com/outrigger/outrigger/test/tier"
)

func TestAzure(t *testing.T) {
	overCarriers(t, "azure", tier.Checks(), func(t *testing.T) []string {
		cloud := azuresim.New(t, azuresim.Options{})
		t.Cleanup(func() {
			for _, wrong := range append(cloud.Wrong(), cloud.World.Violations()...) {
				t.Error(wrong)
			}
			for _, left := range cloud.World.Own() {
				t.Errorf("left behind: %s", left)
			}
		})
		return cloud.Env(t)
	})
}
