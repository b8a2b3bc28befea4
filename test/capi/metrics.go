// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Reconciles is how often a controller of the manager has ended a
// reconciliation since it started.
func (m *Manager) Reconciles(t testing.TB, controller string) int {
	t.Helper()
	return int(m.Sum(t, "controller_runtime_reconcile_total", `controller="`+controller+`"`))
}

// Sum adds up a metric of the manager over all its labels, or over those lines
// that contain one.
func (m *Manager) Sum(t testing.TB, metric, label string) float64 {
	t.Helper()
	r, err := http.Get(m.Metrics)
	must(t, err, "read the metrics")
	defer r.Body.Close()
	var sum float64
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		labels, value, ok := strings.Cut(rest, "} ")
		if !ok || name != metric || !strings.Contains(labels, label) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		must(t, err, "read the metrics")
		sum += n
	}
	must(t, lines.Err(), "read the metrics")
	return sum
}
