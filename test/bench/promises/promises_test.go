// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, p := range All() {
		if names[p.Name] {
			t.Errorf("%s: there are two", p.Name)
		}
		names[p.Name] = true
		if p.Name == "" || p.What == "" || p.Section == "" || p.Package == "" || p.Benchmark == "" {
			t.Errorf("%+v is not complete", p)
		}
		if p.Keeps(math.NaN()) || p.Keeps(math.Inf(1)) && p.Bound != AtLeast {
			t.Errorf("%s is kept by what is not a figure", p.Name)
		}
		// Words must not hide a figure.
		if none, fewer := p.Bound == AtMost && p.Figure == 0, p.Bound == Below && p.Figure == 1; p.Says != "" && !none && !fewer {
			t.Errorf("%s: %q are words for %s %v", p.Name, p.Says, p.Bound, p.Figure)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		bound               Bound
		below, equal, above bool
	}{{AtMost, true, true, false}, {AtLeast, false, true, true}, {Below, true, false, false}, {"", false, false, false}} {
		p := Promise{Bound: test.bound, Figure: 10}
		if p.Keeps(9.9) != test.below || p.Keeps(10) != test.equal || p.Keeps(10.1) != test.above {
			t.Errorf("%q 10 is kept by 9.9: %t, 10: %t, 10.1: %t", test.bound, p.Keeps(9.9), p.Keeps(10), p.Keeps(10.1))
		}
	}
}

func TestFiguresAsText(t *testing.T) {
	t.Parallel()
	p := Promise{Bound: AtMost, Figure: 2.5, Unit: "s"}
	if got := p.Text(); got != "≤ 2.5 s" {
		t.Errorf("promised: %q", got)
	}
	for value, want := range map[float64]string{26912.4: "26912 s", 109.26: "109 s", 2.014: "2.01 s", 0.01044: "0.0104 s", 0: "0 s", 1e-9: "0.0000 s", -3.14159: "-3.14 s"} {
		if got := p.Measured(value); got != want {
			t.Errorf("%v is written %q, want %q", value, got, want)
		}
	}
	if got := (Promise{Bound: AtMost, Says: "static"}).Text(); got != "static" {
		t.Errorf("in words: %q", got)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSpecificationAndTableAreOne(t *testing.T) {
	t.Parallel()
	for _, difference := range Differences(read(t, "SPECIFICATION.md"), All()) {
		t.Errorf("SPECIFICATION.md and test/bench/promises/table.go differ: %s", difference)
	}
}

// TestDifferencesAreSeen changes SPECIFICATION.md, or the table.
func TestDifferencesAreSeen(t *testing.T) {
	t.Parallel()
	text := read(t, "SPECIFICATION.md")
	for name, test := range map[string]struct {
		from, to string
		change   func([]Promise) []Promise
		want     string
	}{
		"another figure":                        {"≤ 100 µs", "≤ 90 µs", nil, `"≤ 100 µs" is not in the row`},
		"a figure without a promise":            {"≤ 100 µs", "≤ 100 µs and ≤ 7 s", nil, `no promise has the figure "≤ 7 s"`},
		"a figure in a row without a benchmark": {"| pods outlive", "| in ≤ 3 s pods outlive", nil, `no promise has the figure "≤ 3 s"`},
		"a longer figure":                       {"≤ 100 µs", "≤ 1000 µs", nil, `no promise has the figure "≤ 1000 µs"`},
		"another unit":                          {"≤ 100 µs", "≤ 100 µst", nil, `no promise has the figure "≤ 100 µst"`},
		"another bound":                         {"≥ 5000 calls/s", "≤ 5000 calls/s", nil, `"≥ 5000 calls/s" is not in the row`},
		"another benchmark":                     {"BenchmarkStartVM", "BenchmarkStopVM", nil, "0 rows that name `internal/peerpods/adaptor` BenchmarkStartVM"},
		"a benchmark without a promise":         {"`test/bench` size", "`test/bench` size, weight", nil, "no promise is held by `test/bench` weight"},
		"another package":                       {"`internal/peerpods/webhook` BenchmarkCall", "`internal/web` BenchmarkCall", nil, "0 rows that name `internal/peerpods/webhook` BenchmarkCall"},
		"another section":                       {"## Speed and size", "## Speed", nil, `section "Speed and size" has 0 rows`},
		"no words of idleness":                  {"first output: ≤ 3.5 s on an idle machine", "first output: ≤ 3.5 s", nil, "a promise of it wants that: true"},
		"words of idleness":                     {"idle, ≤ 150 KiB", "idle, on an idle machine ≤ 150 KiB", nil, "a promise of it wants that: false"},
		"other words":                           {"none is made twice", "some are made twice", nil, `"none is made twice" is not in the row`},
		"a promise less": {"", "", func(all []Promise) []Promise {
			return slices.DeleteFunc(all, func(p Promise) bool { return p.Name == "relay-added" })
		}, `no promise has the figure "≤ 100 µs"`},
		"a promise more": {"", "", func(all []Promise) []Promise {
			return append(all, Promise{Name: "new", Bound: AtMost, Figure: 1, Section: "A pod", Package: Bench, Benchmark: "new"})
		}, "0 rows that name `test/bench` new"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(text, test.from) {
				t.Fatalf("SPECIFICATION.md has no %q any more", test.from)
			}
			all := All()
			if test.change != nil {
				all = test.change(all)
			}
			found := strings.Join(Differences(strings.ReplaceAll(text, test.from, test.to), all), "\n")
			if !strings.Contains(found, test.want) {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}

// TestDocumentHasThePromises compares the table with what the last run has written.
func TestDocumentHasThePromises(t *testing.T) {
	t.Parallel()
	cells := map[string]string{}
	for line := range strings.Lines(read(t, "docs/benchmarks.md")) {
		if row := strings.Split(line, " | "); len(row) == 4 {
			cells[strings.TrimPrefix(row[0], "| ")] = strings.TrimSpace(row[1])
		}
	}
	for _, p := range All() {
		if got, there := cells[p.What]; !there || got != (Result{Promise: p}).promised() {
			t.Errorf("docs/benchmarks.md: %s: %q is promised there, %q in the table", p.What, got, p.Text())
		}
	}
}
