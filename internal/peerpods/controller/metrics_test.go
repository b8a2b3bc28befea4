// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestDeletionsBeginWithZero: increase() does not count the first of a series that begins with one.
func TestDeletionsBeginWithZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	newMeters(registry).sweptAt("fake", time.Unix(1, 0), 0, 0)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "peerpod_ctrl_instances_deleted_total" && len(f.GetMetric()) == 3 && f.GetMetric()[0].GetCounter().GetValue() == 0 {
			return
		}
	}
	t.Errorf("no deletions of three causes: %v", families)
}
