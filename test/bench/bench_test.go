// SPDX-License-Identifier: Apache-2.0

//go:build bench

// Package bench measures what SPECIFICATION.md promises, and more. `make bench`
// runs it, has package promises judge what was measured and keeps all of it in
// docs/benchmarks.md. It is built as a test only to use the tests' stand.
//
// Times of a machine shared with others mean little by themselves: what has a
// baseline is measured beside it in the same run and given as a ratio, and
// every figure is the median of at least ten runs.
package bench

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

// measured is what a measurement returns: lines of the first table, and perhaps
// a section of its own with pictures.
type measured struct {
	figures  []promises.Figure
	table    string
	pictures map[string]string
}

type measurement struct {
	name string
	run  func(t *testing.T, runs int) measured
}

func measurements() []measurement {
	lines := func(run func(*testing.T, int) []promises.Figure) func(*testing.T, int) measured {
		return func(t *testing.T, runs int) measured { return measured{figures: run(t, runs)} }
	}
	return []measurement{
		{"size", lines(sizes)},
		{"carriers", lines(carriers)},
		{"start", lines(starts)},
		{promises.GoBenchmarks, goBenchmarks},
		{"memory", lines(memory)},
		{"monitor", lines(monitorMemory)},
		{"guest", lines(guestBoot)},
		{"run", podStart},
		{"pool-vm", lines(poolVM)},
		{"large-image", lines(largeImage)},
		{"configmap", lines(configMap)},
		{"attestation", lines(attestation)},
		{"volumes", lines(volumes)},
		{"clouds", clouds},
		{"machines", machines},
		{"ccm", ccm},
		{"ccm-operator", operators},
	}
}

var (
	runs    = flag.Int("runs", 10, "runs of each measurement, at least 10 for the published table")
	only    = flag.String("only", "", "run only measurements whose name contains this")
	promise = flag.String("promise", "", "measure only the promises with these names, separated by commas")
	figures = flag.String("figures", "", "file to write what is measured to")
)

func TestMain(m *testing.M) { testns.Main(m) }

// TestMeasure has a subtest for each measurement: when one fails, the others
// are measured anyway.
func TestMeasure(t *testing.T) {
	testns.RequireRoot(t)
	asked, wanted := asked(t)
	r := &promises.Run{Time: time.Now().UTC(), Commit: commit(), Kernel: kernel(), Processors: runtime.NumCPU(), Runs: *runs, Load: load(), Asked: asked, Pictures: map[string]string{}}
	keep := func() {
		if *figures == "" {
			return
		}
		if err := r.Write(*figures); err != nil {
			t.Fatal(err)
		}
	}
	keep()
	for _, m := range wanted {
		t.Run(m.name, func(t *testing.T) {
			var got measured
			others := watched(t, m.name, func() { got = m.run(t, *runs) })
			r.Figures = append(r.Figures, seen(got.figures, others)...)
			if got.table != "" {
				r.Tables = append(r.Tables, got.table)
			}
			maps.Copy(r.Pictures, got.pictures)
		})
		keep()
	}
}

// asked returns the names of promises and the measurements that the flags ask for.
func asked(t *testing.T) (names []string, wanted []measurement) {
	named := strings.FieldsFunc(*promise, func(r rune) bool { return r == ',' })
	for _, name := range named {
		if _, ok := promises.Find(promises.All(), name); !ok {
			t.Fatalf("-promise %s: no such promise; there are %s", name, strings.Join(promises.Names(promises.All()), ", "))
		}
	}
	for _, m := range measurements() {
		if !strings.Contains(m.name, *only) {
			continue
		}
		before := len(names)
		for _, p := range promises.All() {
			if p.Measurement() == m.name && (len(named) == 0 || slices.Contains(named, p.Name)) {
				names = append(names, p.Name)
			}
		}
		if len(named) == 0 || len(names) > before {
			wanted = append(wanted, m)
		}
	}
	if len(wanted) == 0 {
		t.Fatalf("-only %q -promise %q: nothing to measure", *only, *promise)
	}
	return names, wanted
}

// isAsked reports whether the flags ask for a promise.
func isAsked(name string) bool {
	return *promise == "" || slices.Contains(strings.Split(*promise, ","), name)
}

// watched returns which share of the processors others took just before or
// after, if a promise of the measurement wants an idle machine.
func watched(t *testing.T, measurement string, do func()) float64 {
	idle := slices.ContainsFunc(promises.All(), func(p promises.Promise) bool {
		return p.Idle && isAsked(p.Name) && (p.Measurement() == measurement || p.Benchmark == measurement)
	})
	// Those of other packages are watched one by one.
	if !idle || measurement == promises.GoBenchmarks {
		do()
		return 0
	}
	before := others(t)
	do()
	return max(before, others(t))
}

func others(t *testing.T) float64 {
	t.Helper()
	share, err := promises.Others(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return share
}

// seen notes with figures what others took.
func seen(figures []promises.Figure, others float64) []promises.Figure {
	for i := range figures {
		figures[i].Others = max(figures[i].Others, others)
	}
	return figures
}

func commit() string {
	cmd := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*")
	cmd.Dir = stand.Root()
	out, _ := cmd.Output() // an archive has none
	return strings.TrimSpace(string(out))
}

func kernel() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	version, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return "Linux " + version
}

// load is the average over 15 minutes.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return 0
	}
	v, _ := strconv.ParseFloat(fields[2], 64)
	return v
}

// median of at least one value.
func median[T int64 | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
