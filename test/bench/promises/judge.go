// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"fmt"
	"io"
	"slices"
)

// Verdict of a promise that was to be measured.
type Verdict string

// Verdicts. A promise that wants an idle machine and is not kept on a busy one
// is not judged.
const (
	Kept      Verdict = "kept"
	NotKept   Verdict = "not kept"
	DidNotRun Verdict = "did not run"
	NotJudged Verdict = "not judged: busy machine"
)

// Exit statuses of the benchmarks.
const (
	StatusKept      = 0
	StatusNotKept   = 1
	StatusNotJudged = 3
)

// busyFrom is the share of the processors that others may take of an idle machine.
const busyFrom = 0.1

// Result is a promise with what was measured of it.
type Result struct {
	Promise
	Verdict
	// Value is not set if it did not run.
	Value  float64
	Others float64
}

// Judge returns a result for each promise that was asked for, in their order.
func (r *Run) Judge(all []Promise) []Result {
	var results []Result
	for _, name := range r.Asked {
		p, _ := Find(all, name)
		results = append(results, r.judge(p))
	}
	return results
}

func (r *Run) judge(p Promise) Result {
	i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Promise == p.Name })
	if i < 0 {
		return Result{Promise: p, Verdict: DidNotRun}
	}
	result := Result{Promise: p, Verdict: Kept, Value: r.Figures[i].Value, Others: r.Figures[i].Others}
	switch {
	case p.Keeps(result.Value):
	case p.Idle && result.Others > busyFrom:
		result.Verdict = NotJudged
	default:
		result.Verdict = NotKept
	}
	return result
}

// Status is the exit status for results: that it did not run is as bad as that
// it is not kept.
func Status(results []Result) int {
	status := StatusKept
	for _, r := range results {
		switch r.Verdict {
		case NotKept, DidNotRun:
			return StatusNotKept
		case NotJudged:
			status = StatusNotJudged
		}
	}
	return status
}

// Report writes a line for each promise that is not known to be kept, how it is
// measured alone, and one for all.
func Report(w io.Writer, results []Result) {
	count := map[Verdict]int{}
	for _, r := range results {
		if count[r.Verdict]++; r.Verdict != Kept {
			fmt.Fprintf(w, "bench: %s: %s\n", r.Name, r.sentence())
		}
	}
	fmt.Fprintf(w, "bench: of %d promises %d are kept, %d are not, %d did not run, %d were not judged\n",
		len(results), count[Kept], count[NotKept], count[DidNotRun], count[NotJudged])
}

func (r Result) sentence() string {
	measured := string(DidNotRun)
	if r.Verdict != DidNotRun {
		measured = r.Measured(r.Value) + " measured" + r.excuse()
	}
	return fmt.Sprintf("%s: %s promised, %s; alone: %s", r.What, r.Text(), measured, r.Alone())
}

// cell is what was measured, for the document.
func (r Result) cell() string {
	switch r.Verdict {
	case DidNotRun:
		return "**" + string(DidNotRun) + "**"
	case NotKept:
		return "**" + r.Measured(r.Value) + "**"
	}
	return r.Measured(r.Value) + r.excuse()
}

// excuse returns why it is not judged.
func (r Result) excuse() string {
	if r.Verdict != NotJudged {
		return ""
	}
	return fmt.Sprintf(", %s (others took %.0f %% of the processors)", NotJudged, 100*r.Others)
}
