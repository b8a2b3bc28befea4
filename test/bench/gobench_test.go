// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

// goFigure is a metric of a Go benchmark.
type goFigure struct {
	// promise is what it is measured for; pkg, benchmark, what and unit are then
	// those of the promise.
	promise              string
	pkg, benchmark, what string
	unit                 string
	// metric is the unit as the benchmark reports it, per is how many of it are
	// one of the figure's, if not 1.
	metric string
	per    float64
	// cases is the part of the sub-benchmarks' names that counts; empty means all.
	cases string
	// rounds and runs, where half a second as often as everything else is not
	// right.
	rounds string
	runs   int
}

const (
	relay      = "./internal/peerpods/relay"
	controller = "./internal/peerpods/controller/command"
	plugins    = "./provider/plugin"
)

func goFigures() []goFigure {
	return []goFigure{
		{promise: "start-vm", metric: "p50-ms"},
		{pkg: "./internal/peerpods/adaptor", benchmark: "BenchmarkStartVM", metric: "to-tunnel-p50-ms", what: "from the address of a VM to the beginning of its tunnel, p50", unit: "ms"},
		{promise: "relay-added", metric: "µs-added-p50"},
		{promise: "relay-waits", metric: "waits/call"},
		{pkg: relay, benchmark: "BenchmarkCall", metric: "µs-relay-p50", what: "relay alone: added to a call that goes to the forwarder by TLS, p50", unit: "µs"},
		{promise: "relay-calls", metric: "calls/s"},
		{promise: "pod-path-ipv4-1500", cases: "underlay6=false/mtu=1500", metric: "%-of-bare"},
		{promise: "pod-path-ipv4-9000", cases: "underlay6=false/mtu=9000", metric: "%-of-bare"},
		{promise: "pod-path-ipv6-1500", cases: "underlay6=true/mtu=1500", metric: "%-of-bare"},
		{promise: "pod-path-ipv6-9000", cases: "underlay6=true/mtu=9000", metric: "%-of-bare"},
		{promise: "encrypted-path", metric: "%-of-plain"},
		{promise: "pod-life-writes", metric: "API-writes/pod", rounds: "20x", runs: 1},
		{promise: "peerpods-cold", metric: "cold-s", rounds: "1x", runs: 3},
		{pkg: controller, benchmark: "BenchmarkCold", metric: "cold-cpu-s", what: "controller: the same, processor time", unit: "s", rounds: "1x", runs: 3},
		{promise: "peerpods-steady", metric: "steady-%", rounds: "1x", runs: 3},
		{pkg: controller, benchmark: "BenchmarkCold", metric: "rss-MiB", what: "controller: 5,000 PeerPods, resident", unit: "MiB", rounds: "1x", runs: 3},
		{promise: "take-vm", metric: "ms-p99", per: 1000, rounds: "3x"},
		{pkg: "./internal/peerpods/adaptor/cluster", benchmark: "BenchmarkTakeVMAtAServer", metric: "ms-p99", what: "the same at a real API server beside it", unit: "ms", rounds: "1x", runs: 3},
		{promise: "idle-pool", metric: "%-of-a-processor", rounds: "20x"},
		{promise: "sweep", cases: "/10000", metric: "ns/op", per: 1e9, rounds: "10x"},
		{promise: "webhook-usual", cases: "/usual", metric: "ms-p99", rounds: "2000x"},
		{promise: "webhook-large", cases: "/large", metric: "ms-p99", rounds: "2000x"},
		{promise: "policy-container", cases: "/container", metric: "ms-p99", rounds: "2000x"},
		{promise: "policy-refused", cases: "/refused", metric: "ms-p99", rounds: "2000x"},
		{pkg: plugins, benchmark: "BenchmarkProcessCall", metric: "µs-added-p50", what: "process plugin: added to a call in process, p50", unit: "µs"},
		{promise: "plugin-call", metric: "µs-added-p99"},
		{pkg: plugins, benchmark: "BenchmarkSocketCall", metric: "µs-added-p50", what: "provider on a socket: added to a call in process, p50", unit: "µs"},
		{pkg: plugins, benchmark: "BenchmarkSocketCall", metric: "µs-added-p99", what: "provider on a socket: added to a call in process, p99", unit: "µs"},
		{pkg: plugins, benchmark: "BenchmarkProcessStart", metric: "ms-start", what: "process plugin: from nothing to its first answer", unit: "ms"},
		{promise: "plugin-restart", metric: "ms-restart", per: 1000},
	}
}

// sample is one value that a benchmark reported.
type sample struct {
	name, metric string
	value        float64
}

// goBenchmarks takes the median of what each benchmark reports.
func goBenchmarks(t *testing.T, runs int) measured {
	samples, others := map[string][]sample{}, map[string]float64{}
	var all []promises.Figure
	for _, f := range goFigures() {
		if *promise != "" && !isAsked(f.promise) {
			continue
		}
		f = f.complete()
		key := f.pkg + f.benchmark
		if samples[key] == nil {
			others[key] = watched(t, f.benchmark, func() { samples[key] = runBenchmark(t, f, runs) })
		}
		if values := f.values(samples[key]); len(values) > 0 {
			figure := f.figure(median(values))
			figure.Others = others[key]
			all = append(all, figure)
		} else {
			t.Errorf("%s in %s reports no %q", f.benchmark, f.pkg, f.metric)
		}
	}
	m := measured{figures: all}
	if slices.ContainsFunc(all, func(f promises.Figure) bool { return strings.HasPrefix(f.Promise, "pod-path-") }) {
		m.table, m.pictures = throughputTable, map[string]string{"throughput.svg": throughput(all)}
	}
	return m
}

const throughputTable = `
## How fast a pod's network is

What TCP carries from a pod through its tunnel, in percent of what the same two network cards carry without one.

![Throughput of the tunnel against the bare underlay](pictures/throughput.svg)
`

// throughput draws what was measured of the pods' path.
func throughput(figures []promises.Figure) string {
	var bars []promises.Bar
	for _, f := range figures {
		if name, is := strings.CutPrefix(f.Promise, "pod-path-"); is {
			bars = append(bars, promises.Bar{Name: strings.Replace(name, "-", ", MTU ", 1), Parts: []promises.Part{{Name: "through the tunnel", Length: f.Value}},
				Marks: []promises.Mark{{Name: "bare", At: 100}}})
		}
	}
	return promises.Picture("TCP throughput of a pod, in percent of the bare underlay", "%", bars)
}

// complete takes from the promise what is its.
func (f goFigure) complete() goFigure {
	if p, ok := promises.Find(promises.All(), f.promise); ok {
		f.pkg, f.benchmark = "./"+p.Package, p.Benchmark
	}
	return f
}

func (f goFigure) values(samples []sample) (values []float64) {
	for _, s := range samples {
		if s.metric == f.metric && strings.Contains(s.name, f.cases) {
			values = append(values, s.value/cmp.Or(f.per, 1))
		}
	}
	return values
}

func (f goFigure) figure(value float64) promises.Figure {
	how := "`" + f.benchmark + "` in `" + f.pkg + "`"
	if f.promise != "" {
		return promises.Figure{Promise: f.promise, Value: value, How: how}
	}
	return promises.Figure{What: f.what, Measured: promises.Promise{Unit: f.unit}.Measured(value), How: how}
}

// runBenchmark runs it for ten rounds, `runs` times.
func runBenchmark(t *testing.T, f goFigure, runs int) []sample {
	rounds := cmp.Or(f.rounds, "0.5s")
	switch {
	case f.runs > 0:
		runs = min(runs, f.runs)
	case f.pkg == "./internal/peerpods/podnetwork":
		// Each round is a large transfer, and the benchmark takes medians itself.
		rounds, runs = fmt.Sprintf("%dx", runs), 1
	}
	cmd := exec.Command("go", "test", "-tags", "integration,grpcnotrace", "-run", "^$", "-bench", "^"+f.benchmark+"$",
		"-count", strconv.Itoa(runs), "-benchtime", rounds, "-timeout", "30m", f.pkg)
	cmd.Dir = stand.Root()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	var samples []sample
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], f.benchmark) {
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
