// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"fmt"
	"io"
	"strings"
)

// plotWidth is that of the bars, in characters.
const plotWidth = 50

// Plot draws a bar for each run that measured a promise, with a mark at what is
// promised.
func Plot(w io.Writer, p Promise, history []Entry) error {
	runs, points := measured(p, history)
	if len(points) == 0 {
		return fmt.Errorf("no run on record has measured %s: %s does", p.Name, p.Alone())
	}
	most := p.Figure
	for _, point := range points {
		most = max(most, point.Value)
	}
	fmt.Fprintf(w, "%s: %s; promised: %s\n", p.Name, p.What, p.Text())
	for i, point := range points {
		fmt.Fprintf(w, "%s  %-13.13s  load %4.1f  %-50s  %s%s\n", runs[i].Time.Format("2006-01-02 15:04"), runs[i].Commit, runs[i].Load,
			bar(point.Value, p.Figure, most), p.Measured(point.Value), remark(point))
	}
	return nil
}

// measured returns the points of a promise with their runs.
func measured(p Promise, history []Entry) (runs []Entry, points []Point) {
	for _, e := range history {
		for _, point := range e.Points {
			if point.Promise == p.Name && point.Verdict != DidNotRun {
				runs, points = append(runs, e), append(points, point)
			}
		}
	}
	return runs, points
}

// bar is a line of plotWidth characters for values from 0 to most.
func bar(value, promised, most float64) string {
	if most == 0 {
		return "|" // nothing promised, nothing measured
	}
	at := func(v float64) int { return int(max(0, v) / most * (plotWidth - 1)) }
	line := []rune(strings.Repeat("█", at(value)) + strings.Repeat(" ", plotWidth-at(value)))
	line[at(promised)] = '|'
	return strings.TrimRight(string(line), " ")
}

func remark(point Point) string {
	if point.Verdict == Kept {
		return ""
	}
	return ", " + string(point.Verdict)
}

// Summary writes the newest point of each promise.
func Summary(w io.Writer, all []Promise, history []Entry) {
	for _, p := range all {
		line := "never measured"
		if runs, points := measured(p, history); len(points) > 0 {
			last := len(points) - 1
			line = fmt.Sprintf("%s on %s%s; runs: %d", p.Measured(points[last].Value), runs[last].Time.Format("2006-01-02"), remark(points[last]), len(points))
		}
		fmt.Fprintf(w, "%-26s %-34s %s\n", p.Name, p.Text(), line)
	}
}
