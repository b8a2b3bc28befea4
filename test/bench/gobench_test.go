// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"cmp"
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
	// rounds and runs, where half a second as often as everything else is not
	// right.
	rounds string
	runs   int
}

const (
	claims     = "./internal/adaptor/cluster"
	controller = "./internal/peerpod/command"
	webhook    = "./internal/webhook"

	plugins = "./provider/plugin"
	podPath = "pod path: TCP throughput against the bare underlay, "
)

var promises = []promise{
	{pkg: "./internal/adaptor", benchmark: "BenchmarkStartVM", metric: "p50-ms", what: "our share of StartVM, p50", target: "≤ 25 ms", format: unit("ms")},
	{pkg: "./internal/adaptor", benchmark: "BenchmarkStartVM", metric: "to-tunnel-p50-ms", what: "from the address of a VM to the beginning of its tunnel, p50", format: unit("ms")},
	{pkg: "./internal/relay", benchmark: "BenchmarkCall", metric: "µs-added-p50", what: "relay and forwarder: added to an agent call, p50", target: "≤ 100 µs", format: unit("µs")},
	{pkg: "./internal/relay", benchmark: "BenchmarkCall", metric: "µs-relay-p50", what: "relay alone: added to a call that goes to the forwarder by TLS, p50", format: unit("µs")},
	{pkg: "./internal/relay", benchmark: "BenchmarkCall", metric: "calls/s", what: "relay and forwarder: calls", target: "≥ 5000/s", format: unit("/s")},
	{pkg: "./internal/podnetwork", benchmark: "BenchmarkPodPath", cases: "underlay6=false/mtu=1500", metric: "%-of-bare", what: podPath + "IPv4, MTU 1500", target: "≥ 80 %", format: unit("%")},
	{pkg: "./internal/podnetwork", benchmark: "BenchmarkPodPath", cases: "underlay6=false/mtu=9000", metric: "%-of-bare", what: podPath + "IPv4, MTU 9000", target: "≥ 80 %", format: unit("%")},
	{pkg: "./internal/podnetwork", benchmark: "BenchmarkPodPath", cases: "underlay6=true/mtu=1500", metric: "%-of-bare", what: podPath + "IPv6, MTU 1500", target: "≥ 80 %", format: unit("%")},
	{pkg: "./internal/podnetwork", benchmark: "BenchmarkPodPath", cases: "underlay6=true/mtu=9000", metric: "%-of-bare", what: podPath + "IPv6, MTU 9000", target: "≥ 80 %", format: unit("%")},
	{pkg: claims, benchmark: "BenchmarkPodLife", metric: "API-writes/pod", what: "API writes for the life of a pod", target: "≤ 8", format: unit(""), rounds: "20x", runs: 1},
	{pkg: controller, benchmark: "BenchmarkCold", metric: "cold-s", what: "controller: 5,000 PeerPods after a start, elapsed", target: "≤ 10 s", format: unit("s"), rounds: "1x", runs: 3},
	{pkg: controller, benchmark: "BenchmarkCold", metric: "cold-cpu-s", what: "controller: the same, processor time", format: unit("s"), rounds: "1x", runs: 3},
	{pkg: controller, benchmark: "BenchmarkCold", metric: "steady-%", what: "controller: 5,000 PeerPods, steady, a sweep each second, of one processor", target: "≤ 5 %", format: unit("%"), rounds: "1x", runs: 3},
	{pkg: controller, benchmark: "BenchmarkCold", metric: "rss-MiB", what: "controller: 5,000 PeerPods, resident", format: unit("MiB"), rounds: "1x", runs: 3},
	{pkg: "./internal/peerpod/controller", benchmark: "BenchmarkSweep", cases: "/10000", metric: "ns/op", what: "controller: one sweep of 10,000 instances", format: millis, rounds: "10x"},
	{pkg: webhook, benchmark: "BenchmarkCall", cases: "/usual", metric: "ms-p99", what: "webhook: a usual pod, processor time, p99", target: "≤ 5 ms", format: unit("ms"), rounds: "2000x"},
	{pkg: webhook, benchmark: "BenchmarkCall", cases: "/large", metric: "ms-p99", what: "webhook: a pod of 20 containers and 70 KB, processor time, p99", target: "≤ 5 ms", format: unit("ms"), rounds: "2000x"},
	{pkg: plugins, benchmark: "BenchmarkProcessCall", metric: "µs-added-p50", what: "process plugin: added to a call in process, p50", format: unit("µs")},
	{pkg: plugins, benchmark: "BenchmarkProcessCall", metric: "µs-added-p99", what: "process plugin: added to a call in process, p99", target: "≤ 250 µs", format: unit("µs")},
	{pkg: plugins, benchmark: "BenchmarkSocketCall", metric: "µs-added-p50", what: "provider on a socket: added to a call in process, p50", format: unit("µs")},
	{pkg: plugins, benchmark: "BenchmarkSocketCall", metric: "µs-added-p99", what: "provider on a socket: added to a call in process, p99", format: unit("µs")},
	{pkg: plugins, benchmark: "BenchmarkProcessStart", metric: "ms-start", what: "process plugin: from nothing to its first answer", format: unit("ms")},
	{pkg: plugins, benchmark: "BenchmarkProcessRestart", metric: "ms-restart", what: "process plugin: from its end in a call to the next answer", target: "≤ 1 s", format: unit("ms")},
}

func unit(name string) func(float64) string {
	return func(v float64) string { return strings.TrimSpace(fmt.Sprintf("%.3g %s", v, name)) }
}

func millis(nanoseconds float64) string { return unit("ms")(nanoseconds / 1e6) }

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
		key := p.pkg + p.benchmark
		if samples[key] == nil {
			samples[key] = runBenchmark(t, p, runs)
		}
		var values []float64
		for _, s := range samples[key] {
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
	rounds := cmp.Or(p.rounds, "0.5s")
	switch {
	case p.runs > 0:
		runs = min(runs, p.runs)
	case p.pkg == "./internal/podnetwork":
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
