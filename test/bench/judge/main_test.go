// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/bench/promises"
)

// asCommand makes this program the command.
const asCommand = "OUTRIGGER_TEST_JUDGE"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// judge runs the command and returns its exit status and its output.
func judge(t *testing.T, args ...string) (int, string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// keeping returns a run that keeps every promise.
func keeping() *promises.Run {
	r := &promises.Run{Time: time.Date(2026, 2, 3, 4, 5, 0, 0, time.UTC), Commit: "0123abc", Kernel: "Linux 6", Processors: 2, Runs: 10,
		Tables: []string{"\n## Another\n"}}
	for _, p := range promises.All() {
		value := p.Figure
		if p.Bound == promises.Below {
			value /= 2
		}
		r.Asked = append(r.Asked, p.Name)
		r.Figures = append(r.Figures, promises.Figure{Promise: p.Name, Value: value, How: "measured"})
	}
	return r
}

// set changes what was measured of a promise.
func set(r *promises.Run, promise string, value, others float64) {
	for i := range r.Figures {
		if r.Figures[i].Promise == promise {
			r.Figures[i].Value, r.Figures[i].Others = value, others
		}
	}
}

func forget(r *promises.Run, promise string) {
	for i := range r.Figures {
		if r.Figures[i].Promise == promise {
			r.Figures = append(r.Figures[:i], r.Figures[i+1:]...)
			return
		}
	}
}

// TestExitStatus breaks promises: the list names each with what was promised,
// what was measured and how to measure it alone, and the document marks it.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*promises.Run)
		status   int
		list     string // none if empty
		document string
	}{
		"all are kept": {change: func(*promises.Run) {}, document: "| ≤ 100 µs | 100 µs | measured |"},
		"one is not kept": {
			change: func(r *promises.Run) { set(r, "relay-added", 109.4, 0) }, status: promises.StatusNotKept,
			list:     "bench: relay-added: relay and forwarder: added to an agent call, p50: ≤ 100 µs promised, 109 µs measured; alone: test/bench.sh -promise=relay-added\n",
			document: "| ≤ 100 µs | **109 µs** | measured |",
		},
		"too few": {
			change: func(r *promises.Run) { set(r, "relay-calls", 4999, 0) }, status: promises.StatusNotKept,
			list: "≥ 5000 calls/s promised, 4999 calls/s measured", document: "**4999 calls/s**",
		},
		"as many where fewer are promised": {
			change: func(r *promises.Run) { set(r, "machines-writes", 1, 0) }, status: promises.StatusNotKept,
			list: "fewer API writes and reconciles promised, 1.00 times measured", document: "**1.00 times**",
		},
		"one did not run": {
			change: func(r *promises.Run) { forget(r, "guest-boot") }, status: promises.StatusNotKept,
			list: "≤ 2.5 CPU-seconds promised, did not run; alone: test/bench.sh -promise=guest-boot", document: "| **did not run** | `test/bench.sh -promise=guest-boot` |",
		},
		"a busy machine does not excuse": {
			change: func(r *promises.Run) { set(r, "relay-added", 109, 0.9) }, status: promises.StatusNotKept,
			list: "109 µs measured", document: "**109 µs**",
		},
		"one wants an idle machine": {
			change: func(r *promises.Run) { set(r, "first-output", 7, 0.62) }, status: promises.StatusNotJudged,
			list:     "≤ 3.5 s promised, 7.00 s measured, not judged: busy machine (others took 62 % of the processors); alone: ",
			document: "| ≤ 3.5 s, idle machine | 7.00 s, not judged: busy machine",
		},
		"the machine was idle": {
			change: func(r *promises.Run) { set(r, "first-output", 7, 0.05) }, status: promises.StatusNotKept,
			list: "≤ 3.5 s promised, 7.00 s measured", document: "**7.00 s**",
		},
		"kept on a busy machine": {change: func(r *promises.Run) { set(r, "first-output", 3, 0.9) }, document: "| 3.00 s |"},
		"one broken and one not judged": {
			change: func(r *promises.Run) { set(r, "first-output", 7, 0.62); set(r, "relay-added", 109, 0) }, status: promises.StatusNotKept,
			list: "109 µs measured", document: "not judged",
		},
		"it was not asked for": {
			change:   func(r *promises.Run) { r.Asked = []string{"relay-calls"}; forget(r, "relay-added") },
			document: "≥ 5000 calls/s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, run := t.TempDir(), keeping()
			test.change(run)
			document := filepath.Join(dir, "benchmarks.md")
			status, out := judged(t, dir, run, "-output", document)
			if status != test.status {
				t.Errorf("exit status %d, want %d\n%s", status, test.status, out)
			}
			if !strings.Contains(out, test.list) || test.list == "" && strings.Contains(out, "; alone: ") {
				t.Errorf("want the list %q:\n%s", test.list, out)
			}
			text, err := os.ReadFile(document)
			if err != nil || !strings.Contains(string(text), test.document) || !strings.HasSuffix(string(text), "\n## Another\n") {
				t.Errorf("want %q in the document, %v:\n%s", test.document, err, text)
			}
		})
	}
}

// judged runs the command on a run, with a history in dir.
func judged(t *testing.T, dir string, run *promises.Run, args ...string) (int, string) {
	t.Helper()
	figures := filepath.Join(dir, "figures.json")
	if err := run.Write(figures); err != nil {
		t.Fatal(err)
	}
	return judge(t, append(args, "-figures", figures, "-history", filepath.Join(dir, "new", "history.jsonl"))...)
}

// TestDocumentKeepsWhatWasNotMeasured has an old document with sections of other
// authors.
func TestDocumentKeepsWhatWasNotMeasured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	document := filepath.Join(dir, "benchmarks.md")
	old := "# Benchmarks\n\nstale\n\n## First\n\nby hand\n\n## Another\n\nstale\n\n## Last\n\nby hand\n"
	if err := os.WriteFile(document, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	run := keeping()
	run.Tables = append(run.Tables, "\n## New\n")
	judged(t, dir, run, "-output", document)
	text, err := os.ReadFile(document)
	want := "\n\n## First\n\nby hand\n\n## Another\n\n## Last\n\nby hand\n\n## New\n"
	if err != nil || !strings.HasSuffix(string(text), want) || strings.Contains(string(text), "stale") {
		t.Errorf("want the end %q, %v:\n%s", want, err, text)
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	history := filepath.Join(dir, "new", "history.jsonl")
	if status, out := judge(t, "-history", history, "-list"); status != 1 || !strings.Contains(out, "make bench") {
		t.Errorf("without a history: exit status %d\n%s", status, out)
	}
	for _, value := range []float64{50, 200} {
		run := keeping()
		set(run, "relay-added", value, 0)
		judged(t, dir, run)
	}
	data, err := os.ReadFile(history)
	if err != nil || bytes.Count(data, []byte("\n")) != 2 {
		t.Fatalf("want a line for each run, %v:\n%s", err, data)
	}
	_, out := judge(t, "-history", history, "-plot", "relay-added")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[1], "50.0 µs") || !strings.HasSuffix(lines[2], "200 µs, not kept") {
		t.Fatalf("plot:\n%s", out)
	}
	if short, long := strings.Count(lines[1], "█"), strings.Count(lines[2], "█"); short*3 > long || !strings.Contains(lines[1], "|") {
		t.Errorf("the bars do not show the figures:\n%s", out)
	}
	if _, out := judge(t, "-history", history, "-list"); strings.Count(out, "\n") != len(promises.All()) || !strings.Contains(out, "200 µs on 2026-02-03, not kept; runs: 2") {
		t.Errorf("list:\n%s", out)
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	history := file("empty.jsonl", "")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no history":           {[]string{"-figures", "x"}, "-history FILE is missing"},
		"no figures":           {[]string{"-history", history, "-figures", dir + "/missing"}, "left no figures"},
		"figures are not JSON": {[]string{"-history", history, "-figures", file("bad", "{")}, "bad: "},
		"an unknown promise":   {[]string{"-history", history, "-figures", file("unknown", `{"asked":["x"]}`)}, `no promise "x"`},
		"a figure of none":     {[]string{"-history", history, "-figures", file("none", `{"figures":[{"promise":"y"}]}`)}, `no promise "y"`},
		"a plot of none":       {[]string{"-history", history, "-plot", "x"}, "there are adaptor-size, "},
		"nothing to plot":      {[]string{"-history", history, "-plot", "relay-added"}, "test/bench.sh -promise=relay-added"},
		"a broken history":     {[]string{"-history", file("broken.jsonl", "{}\n{"), "-list"}, "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if status, out := judge(t, test.args...); status != 1 || !strings.Contains(out, test.want) {
				t.Errorf("exit status %d, want 1 and %q\n%s", status, test.want, out)
			}
		})
	}
	if status, out := judge(t, "-help"); status != 0 || !strings.Contains(out, "Exit status") {
		t.Errorf("-help: exit status %d\n%s", status, out)
	}
}
