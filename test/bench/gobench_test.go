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
	// cases is the prefix of the sub-benchmarks that count; empty means all.
	cases        string
	metric       string // unit as the benchmark reports it
	what, target string
	format       func(float64) string
}

const (
	plugins = "./provider/plugin"
	podPath = "pod path: TCP throughput against the bare underlay, "
)

var promises = []promise{
	{"./internal/adaptor", "BenchmarkStartVM", "", "p50-ms", "our share of StartVM, p50", "≤ 25 ms", unit("ms")},
	{"./internal/relay", "BenchmarkCall", "", "µs-added-p50", "relay and forwarder: added to an agent call, p50", "≤ 100 µs", unit("µs")},
	{"./internal/relay", "BenchmarkCall", "", "µs-relay-p50", "relay alone: added to a call that goes to the forwarder by TLS, p50", "", unit("µs")},
	{"./internal/relay", "BenchmarkCall", "", "calls/s", "relay and forwarder: calls", "≥ 5000/s", unit("/s")},
	{"./internal/podnetwork", "BenchmarkPodPath", "underlay6=false/mtu=1500", "%-of-bare", podPath + "IPv4, MTU 1500", "≥ 80 %", unit("%")},
	{"./internal/podnetwork", "BenchmarkPodPath", "underlay6=false/mtu=9000", "%-of-bare", podPath + "IPv4, MTU 9000", "≥ 80 %", unit("%")},
	{"./internal/podnetwork", "BenchmarkPodPath", "underlay6=true/mtu=1500", "%-of-bare", podPath + "IPv6, MTU 1500", "≥ 80 %", unit("%")},
	{"./internal/podnetwork", "BenchmarkPodPath", "underlay6=true/mtu=9000", "%-of-bare", podPath + "IPv6, MTU 9000", "≥ 80 %", unit("%")},
	{plugins, "BenchmarkProcessCall", "", "µs-added-p50", "process plugin: added to a call in process, p50", "", unit("µs")},
	{plugins, "BenchmarkProcessCall", "", "µs-added-p99", "process plugin: added to a call in process, p99", "≤ 250 µs", unit("µs")},
	{plugins, "BenchmarkSocketCall", "", "µs-added-p50", "provider on a socket: added to a call in process, p50", "", unit("µs")},
	{plugins, "BenchmarkSocketCall", "", "µs-added-p99", "provider on a socket: added to a call in process, p99", "", unit("µs")},
	{plugins, "BenchmarkProcessStart", "", "ms-start", "process plugin: from nothing to its first answer", "", unit("ms")},
	{plugins, "BenchmarkProcessRestart", "", "ms-restart", "process plugin: from its end in a call to the next answer", "≤ 1 s", unit("ms")},
}

func unit(name string) func(float64) string {
	return func(v float64) string { return fmt.Sprintf("%.3g %s", v, name) }
}

// sample is one value that a benchmark reported.
type sample struct {
	name, metric string
	value        float64
}

// goBenchmarks takes the median of what each benchmark reports.
func goBenchmarks(t *testing.T, runs int) []row {
	samples := map[string][]sample{}
	var rows []row
	for _, p := range promises {
		if samples[p.benchmark] == nil {
			samples[p.benchmark] = runBenchmark(t, p, runs)
		}
		var values []float64
		for _, s := range samples[p.benchmark] {
			if s.metric == p.metric && strings.Contains(s.name, p.cases) {
				values = append(values, s.value)
			}
		}
		if len(values) == 0 {
			t.Errorf("%s in %s reports no %q", p.benchmark, p.pkg, p.metric)
			continue
		}
		rows = append(rows, row{p.what, p.target, p.format(median(values)), "`" + p.benchmark + "` in `" + p.pkg + "`"})
	}
	return rows
}

// runBenchmark runs it for ten rounds, `runs` times.
func runBenchmark(t *testing.T, p promise, runs int) []sample {
	rounds := "0.5s"
	if p.cases != "" {
		// Each round is a large transfer, and the benchmark takes medians itself.
		rounds, runs = fmt.Sprintf("%dx", runs), 1
	}
	cmd := exec.Command("go", "test", "-tags", "integration", "-run", "^$", "-bench", "^"+p.benchmark+"$",
		"-count", strconv.Itoa(runs), "-benchtime", rounds, "-timeout", "30m", p.pkg)
	cmd.Dir = stand.Root()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	var samples []sample
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], p.benchmark) {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				samples = append(samples, sample{fields[0], fields[i+1], v})
			}
		}
	}
	return samples
}
