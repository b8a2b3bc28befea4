// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Forms are what [Write] makes; the first is the default of command lines.
var Forms = []string{"text", "json", "svg"}

// Write writes a timeline in one of the Forms, with the pod's name as title. width is
// that of text, in columns.
func Write(w io.Writer, form, title string, t Timeline, width int) error {
	switch form {
	case "json":
		return t.json(w, title)
	case "svg":
		return t.svg(w, title)
	}
	return t.text(w, title, width)
}

// LeastWidth is that of the text where there is no wider terminal, in columns.
const LeastWidth = 80

// Columns of the text before the bars: where, the step with its detail, start, length.
const (
	whereColumn = 6
	stepColumn  = 28
	timeColumn  = 8
	leastBar    = 20
)

// text draws a waterfall that fits into width columns, 80 or more.
func (t Timeline) text(w io.Writer, title string, width int) error {
	start, end := t.Bounds()
	whole := end.Sub(start)
	bars := max(width-whereColumn-stepColumn-2*timeColumn-1, leastBar)
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s s from the first step to the end of the last%s\n", title, seconds(whole), t.accuracy())
	fmt.Fprintf(&out, "%-*s%-*s%*s%*s\n", whereColumn, "WHERE", stepColumn, "STEP", timeColumn, "START", timeColumn, "TOOK")
	for _, s := range t.Steps {
		at, length := span(s.Start.Sub(start), s.Took(), whole, bars)
		bar := strings.Repeat(" ", at) + strings.Repeat("█", length)
		if length == 0 {
			bar = strings.Repeat(" ", min(at, bars-1)) + "▏"
		}
		name := fit(strings.TrimSpace(s.Name+" "+s.Detail), stepColumn-1)
		fmt.Fprintf(&out, "%-*s%s%s%*s%*s %s\n", whereColumn, s.Where, name, strings.Repeat(" ", stepColumn-utf8.RuneCountInString(name)),
			timeColumn, seconds(s.Start.Sub(start)), timeColumn, seconds(s.Took()), bar)
	}
	if t.Missing != "" {
		fmt.Fprintf(&out, "note: %s\n", t.Missing)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// accuracy says how exactly the guest's steps lie among the node's.
func (t Timeline) accuracy() string {
	if t.Uncertainty <= 0 {
		return ""
	}
	return fmt.Sprintf(" (guest's clock ±%.1f ms)", float64(t.Uncertainty.Microseconds())/1000)
}

// span returns at which of n columns a bar begins and how many it has; 0 if it is
// shorter than half a column.
func span(start, took, whole time.Duration, n int) (at, length int) {
	if whole <= 0 {
		return 0, 0
	}
	column := func(d time.Duration) int { return int((int64(d)*int64(2*n) + int64(whole)) / int64(2*whole)) }
	at = min(max(column(start), 0), n)
	return at, min(max(column(start+took), at), n) - at
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// fit cuts a text to n characters.
func fit(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

// json writes what scripts read: times in milliseconds since the first step.
func (t Timeline) json(w io.Writer, title string) error {
	type step struct {
		Name   string  `json:"name"`
		Where  string  `json:"where"`
		Detail string  `json:"detail,omitempty"`
		Start  float64 `json:"startMilliseconds"`
		Took   float64 `json:"tookMilliseconds"`
	}
	start, end := t.Bounds()
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	out := struct {
		Pod         string    `json:"pod"`
		Began       time.Time `json:"began"`
		Took        float64   `json:"tookMilliseconds"`
		Uncertainty float64   `json:"guestClockUncertaintyMilliseconds"`
		Missing     string    `json:"missing,omitempty"`
		Steps       []step    `json:"steps"`
	}{title, start.UTC(), ms(end.Sub(start)), ms(t.Uncertainty), t.Missing, []step{}}
	for _, s := range t.Steps {
		out.Steps = append(out.Steps, step{s.Name, s.Where, s.Detail, ms(s.Start.Sub(start)), ms(s.Took())})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// Sizes of the picture, in pixels.
const (
	svgRow, svgText, svgBars, svgTimes = 18, 360, 720, 140
	svgWidth                           = svgText + svgBars + svgTimes
)

// svg draws a picture that needs no other file; each bar has its detail as tooltip.
func (t Timeline) svg(w io.Writer, title string) error {
	start, end := t.Bounds()
	whole := max(end.Sub(start), 1)
	var out strings.Builder
	height := svgRow * (len(t.Steps) + 3)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="monospace" font-size="12">`+"\n",
		svgWidth, height, svgWidth, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="white"/>`+"\n", svgWidth, height)
	line := func(row, x int, text string) {
		fmt.Fprintf(&out, `<text x="%d" y="%d">%s</text>`+"\n", x, (row+1)*svgRow-5, html.EscapeString(text))
	}
	line(0, 4, fmt.Sprintf("%s: %s s%s", title, seconds(end.Sub(start)), t.accuracy()))
	for i, s := range t.Steps {
		color := map[string]string{Node: "#3b6ea5", Guest: "#c9772b"}[s.Where]
		scale := func(d time.Duration) float64 { return float64(d) / float64(whole) * svgBars }
		line(i+1, 4, fit(fmt.Sprintf("%-5s %s %s", s.Where, s.Name, s.Detail), 50))
		fmt.Fprintf(&out, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`+"\n",
			svgText+scale(s.Start.Sub(start)), (i+1)*svgRow+3, max(scale(s.Took()), 1), svgRow-6, cmp.Or(color, "gray"),
			html.EscapeString(fmt.Sprintf("%s %s: %s s at %s s. %s", s.Where, s.Name, seconds(s.Took()), seconds(s.Start.Sub(start)), s.Detail)))
		line(i+1, svgText+svgBars+8, fmt.Sprintf("%s +%s", seconds(s.Start.Sub(start)), seconds(s.Took())))
	}
	if t.Missing != "" {
		line(len(t.Steps)+1, 4, "note: "+t.Missing)
	}
	out.WriteString("</svg>\n")
	_, err := io.WriteString(w, out.String())
	return err
}
