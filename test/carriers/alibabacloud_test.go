// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"testing"

	alisim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
	"github.com/outrigger/outrigger/test/tier"
)

func TestAlibabaCloud(t *testing.T) {
	overCarriers(t, "alibabacloud", tier.Checks(), func(t *testing.T) []string {
		cloud := alisim.New(t, alisim.Options{})
		t.Cleanup(func() {
			for _, wrong := range cloud.Violations() {
				t.Error(wrong)
			}
			for _, left := range cloud.Own() {
				t.Errorf("left behind: %s", left)
			}
		})
		return cloud.Env(t)
	})
}
