// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"bufio"
	"net/http"
	"slices"
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

// Writes is how often the manager has asked the API server of this management
// cluster to change something since it started, whatever came of it.
func (m *Manager) Writes(t testing.TB) int {
	t.Helper()
	var sum float64
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		sum += m.Sum(t, "rest_client_requests_total", `method="`+method+`"`, `host="`+m.host+`"`)
	}
	return int(sum)
}

// Sum adds up a metric of the manager over those of its lines that contain all
// of these labels.
func (m *Manager) Sum(t testing.TB, metric string, contain ...string) float64 {
	t.Helper()
	r, err := http.Get(m.Metrics)
	must(t, err, "read the metrics")
	defer r.Body.Close()
	var sum float64
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		labels, value, ok := strings.Cut(rest, "} ")
		lacks := func(label string) bool { return !strings.Contains(labels, label) }
		if !ok || name != metric || slices.ContainsFunc(contain, lacks) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		must(t, err, "read the metrics")
		sum += n
	}
	must(t, lines.Err(), "read the metrics")
	return sum
}
