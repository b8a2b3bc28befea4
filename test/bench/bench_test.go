// SPDX-License-Identifier: Apache-2.0

//go:build bench

// Package bench measures what SPECIFICATION.md promises and prints one table.
// `make bench` runs it and keeps the table in docs/benchmarks.md. It is built
// as a test only to use the tests' stand: no figure makes it fail.
//
// Times of a machine shared with others mean little by themselves: what has a
// baseline is measured beside it in the same run and given as a ratio, and
// every figure is the median of at least ten runs.
package bench

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/testns"
)

// row is one line of the table.
type row struct {
	what, target, measured, remark string
}

// measure answers rows.
type measure struct {
	name string
	run  func(t *testing.T, runs int) []row
}

var (
	runs   = flag.Int("runs", 10, "runs of each measurement, at least 10 for the published table")
	only   = flag.String("only", "", "run only measurements whose name contains this")
	output = flag.String("output", "", "write the table to this file")
)

func TestMain(m *testing.M) { testns.Main(m) }

func TestTable(t *testing.T) {
	testns.RequireRoot(t)
	var rows []row
	for _, m := range []measure{
		{"size", sizes},
		{"carriers", carriers},
		{"go-benchmarks", goBenchmarks},
		{"memory", memory},
		{"monitor", monitorMemory},
		{"guest", guestBoot},
		{"run", firstOutput},
	} {
		if strings.Contains(m.name, *only) {
			t.Logf("measuring %s", m.name)
			rows = append(rows, m.run(t, *runs)...)
		}
	}
	var more string
	if strings.Contains("clouds", *only) {
		t.Log("measuring clouds")
		more = clouds(t, *runs)
	}
	if strings.Contains("machines", *only) {
		t.Log("measuring machines")
		more += machines(t)
	}
	if strings.Contains("ccm", *only) {
		t.Log("measuring ccm")
		more += ccm(t, *runs)
	}
	if strings.Contains("ccm-operator", *only) {
		t.Log("measuring ccm-operator")
		more += operators(t)
	}
	var out io.Writer = os.Stdout
	if *output != "" {
		file, err := os.Create(*output)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		out = io.MultiWriter(os.Stdout, file)
	}
	err := print(out, rows, *runs)
	if err == nil {
		_, err = io.WriteString(out, more)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func print(w io.Writer, rows []row, runs int) error {
	_, err := fmt.Fprintf(w, `# Benchmarks

Made by `+"`make bench`"+` on %s: %d processors, %s, VMs under TCG (QEMU without
KVM). Medians of %d runs unless it says otherwise.

| what | promised | measured | how |
|---|---|---|---|
`, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), kernel(), runs)
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.what, r.target, r.measured, r.remark)
	}
	return err
}

func kernel() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	version, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return "Linux " + version
}

// median of at least one value.
func median[T int64 | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
