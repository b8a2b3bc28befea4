// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// idleWords are those of a row that has a promise for idle machines.
const idleWords = "on an idle machine"

// specRow is a row of SPECIFICATION.md with what holds it.
type specRow struct {
	section, promise string
	heldBy           []reference
}

// reference is a benchmark of a package, or a measurement of test/bench.
type reference struct{ pkg, benchmark string }

func (r reference) String() string { return fmt.Sprintf("`%s` %s", r.pkg, r.benchmark) }

func (p Promise) heldBy() reference { return reference{p.Package, p.Benchmark} }

// Differences returns how a text like SPECIFICATION.md differs from the table,
// in a sentence each: every promise must stand in the one row of its section
// that names its benchmark, and every figure of the text, every benchmark and
// every measurement that it names must have a promise.
func Differences(specification string, all []Promise) []string {
	rows := specRows(specification)
	var found []string
	for _, p := range all {
		found = append(found, missing(p, rows)...)
	}
	for _, row := range rows {
		found = append(found, row.unknown(all)...)
	}
	return found
}

// missing returns what a text lacks of a promise.
func missing(p Promise, rows []specRow) []string {
	var at []specRow
	for _, row := range rows {
		if row.section == p.Section && slices.Contains(row.heldBy, p.heldBy()) {
			at = append(at, row)
		}
	}
	switch {
	case len(at) != 1:
		return []string{fmt.Sprintf("%s: section %q has %d rows that name %s, want 1", p.Name, p.Section, len(at), p.heldBy())}
	case !strings.Contains(at[0].promise, p.Text()):
		return []string{fmt.Sprintf("%s: %q is not in the row %q", p.Name, p.Text(), at[0].promise)}
	}
	return nil
}

// unknown returns what a row has of which the table knows nothing.
func (row specRow) unknown(all []Promise) []string {
	var texts, found []string
	idle := false
	for _, p := range all {
		if p.Section == row.section && slices.Contains(row.heldBy, p.heldBy()) {
			texts, idle = append(texts, p.Text()), idle || p.Idle
		}
	}
	for _, figure := range figures(row.promise) {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text+" ", figure+" ") }) {
			found = append(found, fmt.Sprintf("row %q: no promise has the figure %q", row.promise, figure))
		}
	}
	for _, r := range row.heldBy {
		if !slices.ContainsFunc(all, func(p Promise) bool { return p.Section == row.section && p.heldBy() == r }) {
			found = append(found, fmt.Sprintf("row %q: no promise is held by %s", row.promise, r))
		}
	}
	if said := strings.Contains(row.promise, idleWords); said != idle {
		found = append(found, fmt.Sprintf("row %q: it says %q: %t; a promise of it wants that: %t", row.promise, idleWords, said, idle))
	}
	return found
}

// figures returns what a row promises with a sign: "≤ 2.5 CPU-seconds".
func figures(text string) []string {
	return regexp.MustCompile(`[≤≥<>] *[0-9.,]*[0-9] *[^ ,;:()|]*`).FindAllString(text, -1)
}

// specRows reads the tables of promises.
func specRows(text string) (rows []specRow) {
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "## "); is {
			section = name
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if strings.HasPrefix(line, "| ") && len(cells) == 2 {
			rows = append(rows, specRow{section, strings.TrimSpace(cells[0]), references(cells[1])})
		}
	}
	return rows
}

// references reads the benchmarks and measurements of a cell like "`a/b` TestX,
// BenchmarkY, `test/bench` size": a package goes for all names behind it.
func references(cell string) (found []reference) {
	pkg := ""
	for _, word := range regexp.MustCompile("`[^`]+`|[A-Za-z][A-Za-z0-9/_-]*").FindAllString(cell, -1) {
		name, isPackage := strings.CutPrefix(word, "`")
		switch {
		case isPackage:
			pkg = strings.TrimSuffix(name, "`")
		case pkg == Bench, strings.HasPrefix(word, "Benchmark"):
			found = append(found, reference{pkg, word})
		}
	}
	return found
}
