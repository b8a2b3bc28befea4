// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
)

// promise ties a metric of a Go benchmark to a line of the table.
type promise struct {
	pkg, benchmark string
	metric         string // unit as the benchmark reports it
	what, target   string
	format         func(float64) string
}

var promises = []promise{
	{"./internal/adaptor/...", "BenchmarkStartVM", "ms-p50", "our share of StartVM, p50", "≤ 25 ms", unit("ms")},
	{"./internal/relay/...", "BenchmarkCall", "µs-added-p50", "relay and forwarder: added to an agent call, p50", "≤ 100 µs", unit("µs")},
	{"./internal/relay/...", "BenchmarkCall", "calls/s", "relay and forwarder: calls", "≥ 5000/s", unit("/s")},
	{"./internal/podnetwork/...", "BenchmarkPodPath", "%-of-underlay", "pod path: TCP throughput against the bare underlay", "≥ 80 %", unit("%")},
}

func unit(name string) func(float64) string {
	return func(v float64) string { return fmt.Sprintf("%.3g %s", v, name) }
}

// goBenchmarks runs each benchmark `runs` times and takes the median.
func goBenchmarks(t *testing.T, runs int) []row {
	values := map[string][]float64{}
	done := map[string]bool{}
	var rows []row
	for _, p := range promises {
		if key := p.pkg + p.benchmark; !done[key] {
			done[key] = true
			runBenchmark(t, p, runs, values)
		}
		found := values[p.benchmark+" "+p.metric]
		if len(found) == 0 {
			t.Errorf("%s in %s reports no %q", p.benchmark, p.pkg, p.metric)
			continue
		}
		rows = append(rows, row{p.what, p.target, p.format(median(found)), "`" + p.benchmark + "` in `" + p.pkg + "`"})
	}
	return rows
}

func runBenchmark(t *testing.T, p promise, runs int, values map[string][]float64) {
	cmd := exec.Command("go", "test", "-tags", "integration", "-run", "^$", "-bench", "^"+p.benchmark+"$",
		"-count", strconv.Itoa(runs), "-benchtime", "0.5s", p.pkg)
	cmd.Dir = stand.Root()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
		return
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], p.benchmark) {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				key := p.benchmark + " " + fields[i+1]
				values[key] = append(values[key], v)
			}
		}
	}
}
