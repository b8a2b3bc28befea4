// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/outrigger/outrigger/internal/capiconformance"
	"github.com/outrigger/outrigger/provider/conformance"
)

// report is where results go.
type report struct {
	json           bool
	core           string
	stdout, stderr io.Writer
	junit          *os.File
	// err is the first error of writing while checks ran.
	err error
}

// openReport opens the file before anything runs: a report that cannot be
// written is found out now, not in an hour.
func (a *app) openReport(stdout io.Writer) (*report, error) {
	r := &report{json: a.format == "json", core: a.core, stdout: stdout, stderr: a.stderr}
	if !r.json {
		who := "core is played by the kit (--core play)"
		if a.core == "running" {
			who = "core runs by itself (--core running)"
		}
		if _, err := fmt.Fprintln(stdout, who); err != nil {
			return nil, err
		}
	}
	if a.junit == "" {
		return r, nil
	}
	var err error
	if r.junit, err = os.Create(a.junit); err != nil {
		return nil, usagef("--junit: %w", err)
	}
	return r, nil
}

// options show what runs, and in text each result as it comes.
func (r *report) options() capiconformance.Options {
	return capiconformance.Options{Started: r.started, Ended: r.ended}
}

func (r *report) started(check capiconformance.Check, number, of int) {
	if r.json {
		fmt.Fprintf(r.stderr, "[%d/%d] %s\n", number, of, check.Name)
	}
}

func (r *report) ended(result conformance.Result) {
	if !r.json {
		r.keep(conformance.WriteResult(r.stdout, result))
	}
}

func (r *report) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// end writes what can be said only now, and answers errFailed if a check has
// failed.
func (r *report) end(subject string, results []conformance.Result) error {
	if r.json {
		r.keep(writeJSON(r.stdout, document(subject, r.core, results)))
	} else {
		r.keep(writeEnd(r.stdout, results))
	}
	if r.junit != nil {
		err := errors.Join(conformance.WriteJUnit(r.junit, subject, results), r.junit.Close())
		if err != nil {
			r.keep(fmt.Errorf("--junit: %w", err))
		}
	}
	if conformance.Summarize(results).Failed > 0 {
		return errors.Join(r.err, errFailed)
	}
	return r.err
}

func writeEnd(w io.Writer, results []conformance.Result) error {
	for _, result := range results {
		for _, what := range result.Left {
			if _, err := fmt.Fprintf(w, "left behind by %s: %s\n", result.Name, what); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintln(w, conformance.Summarize(results))
	return err
}

// jsonReport is the report with -o json.
type jsonReport struct {
	Provider string      `json:"provider"`
	Core     string      `json:"core"`
	Passed   int         `json:"passed"`
	Failed   int         `json:"failed"`
	Skipped  int         `json:"skipped"`
	Seconds  float64     `json:"seconds"`
	Checks   []jsonCheck `json:"checks"`
}

type jsonCheck struct {
	Name     string   `json:"name"`
	Contract string   `json:"contract"`
	Status   string   `json:"status,omitempty"`
	Seconds  float64  `json:"seconds,omitempty"`
	Messages []string `json:"messages,omitempty"`
	Left     []string `json:"left,omitempty"`
}

func document(subject, core string, results []conformance.Result) jsonReport {
	s := conformance.Summarize(results)
	all := jsonReport{Provider: subject, Core: core, Passed: s.Passed, Failed: s.Failed, Skipped: s.Skipped, Seconds: s.Took.Seconds()}
	for _, r := range results {
		all.Checks = append(all.Checks, jsonCheck{r.Name, r.Contract, string(r.Status), r.Took.Seconds(), r.Messages, r.Left})
	}
	return all
}

func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// writeList is --list.
func (a *app) writeList(w io.Writer, checks []capiconformance.Check) error {
	width := 0
	var rows []jsonCheck
	for _, check := range checks {
		width = max(width, len(check.Name))
		rows = append(rows, jsonCheck{Name: check.Name, Contract: check.Contract})
	}
	if a.format == "json" {
		return writeJSON(w, rows)
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "%-*s  %s\n", width, row.Name, row.Contract); err != nil {
			return err
		}
	}
	return nil
}
