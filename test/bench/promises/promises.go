// SPDX-License-Identifier: Apache-2.0

// Package promises holds the figures that SPECIFICATION.md promises and a
// benchmark measures, and judges what was measured.
package promises

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bound is how a measured figure compares with the promised one.
type Bound string

// Bounds.
const (
	AtMost  Bound = "≤"
	AtLeast Bound = "≥"
	Below   Bound = "<"
)

// Promise is a figure that a benchmark holds.
type Promise struct {
	// Name is for flags, the history and plots.
	Name string
	// What is measured, as docs/benchmarks.md has it.
	What   string
	Bound  Bound
	Figure float64
	Unit   string
	// Says are the words for a figure that SPECIFICATION.md does not write as a
	// number: 0, or 1 for a ratio.
	Says string
	// Section of SPECIFICATION.md that has the promise, in the row that names
	// Benchmark of Package. Of the package test/bench it is a measurement.
	Section, Package, Benchmark string
	// Idle is set if the figure can be kept only where others do not take the
	// processors meanwhile. SPECIFICATION.md says so in the same row.
	Idle bool
}

// Text is the promised figure as SPECIFICATION.md and docs/benchmarks.md have it.
func (p Promise) Text() string {
	if p.Says != "" {
		return p.Says
	}
	return string(p.Bound) + " " + p.amount(strconv.FormatFloat(p.Figure, 'f', -1, 64))
}

// Measured is a measured value with its unit, in three digits.
func (p Promise) Measured(v float64) string { return p.amount(digits(v)) }

func (p Promise) amount(figure string) string { return strings.TrimSpace(figure + " " + p.Unit) }

// digits writes a value with three digits, or all of those before the point.
func digits(v float64) string {
	decimals := 0
	if v != 0 {
		decimals = max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	}
	return strconv.FormatFloat(v, 'f', min(decimals, 4), 64)
}

// Keeps reports whether a measured value keeps the promise.
func (p Promise) Keeps(v float64) bool {
	switch p.Bound {
	case AtMost:
		return v <= p.Figure
	case AtLeast:
		return v >= p.Figure
	case Below:
		return v < p.Figure
	}
	return false
}

// Measurement is the part of the benchmarks that measures the promise.
func (p Promise) Measurement() string {
	if p.Package == Bench {
		return p.Benchmark
	}
	return GoBenchmarks
}

// Alone is the command that measures this promise and no other.
func (p Promise) Alone() string { return "test/bench.sh -promise=" + p.Name }

// Find returns the promise of a name.
func Find(all []Promise, name string) (Promise, bool) {
	i := slices.IndexFunc(all, func(p Promise) bool { return p.Name == name })
	if i < 0 {
		return Promise{}, false
	}
	return all[i], true
}

// Names of promises, in their order.
func Names(all []Promise) []string {
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}
