// SPDX-License-Identifier: Apache-2.0

// Package checkreport is what the command lines of the conformance kits have in
// common: how results are shown, and which exit code they have.
package checkreport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider/conformance"
)

// Formats of -o.
const (
	Text = "text"
	JSON = "json"
)

// Options are where results go.
type Options struct {
	Format string // Text or JSON
	JUnit  string // a file for a JUnit report too; empty: none
	// Verbose shows skipped checks one by one, and not by their reasons.
	Verbose bool
	// Core says in JSON who played Cluster API's core; empty: nobody.
	Core           string
	Stdout, Stderr io.Writer
}

// Report takes results as they come.
type Report struct {
	Options
	// live says that stderr is a terminal, where the check at hand is shown.
	live  bool
	junit *os.File
	// skipped are the names of checks by why they were skipped, and reasons these in their order.
	skipped map[string][]string
	reasons []string
	// err is the first error of writing while checks ran.
	err error
}

// Open opens the file before anything runs: a report that cannot be written is
// found out now, not in an hour.
func Open(o Options) (*Report, error) {
	r := &Report{Options: o, skipped: map[string][]string{}}
	if f, ok := o.Stderr.(*os.File); ok {
		r.live = term.IsTerminal(int(f.Fd()))
	}
	if o.JUnit == "" {
		return r, nil
	}
	var err error
	if r.junit, err = os.Create(o.JUnit); err != nil {
		return nil, program.Usagef("--junit: %w", err)
	}
	return r, nil
}

// Abandon removes the report of a run that did not begin.
func (r *Report) Abandon() error {
	if r.junit == nil {
		return nil
	}
	return errors.Join(r.junit.Close(), os.Remove(r.junit.Name()))
}

// Started shows which check runs, where results do not.
func (r *Report) Started(check conformance.Check, number, of int) {
	switch {
	case r.live:
		fmt.Fprintf(r.Stderr, "\r\x1b[K[%d/%d] %s", number, of, check.Name)
	case r.Format == JSON:
		fmt.Fprintf(r.Stderr, "[%d/%d] %s\n", number, of, check.Name)
	}
}

// Ended shows a result, in text.
func (r *Report) Ended(result conformance.Result) {
	if r.live {
		fmt.Fprint(r.Stderr, "\r\x1b[K")
	}
	switch reason := strings.Join(result.Messages, "; "); {
	case r.Format == JSON:
	case result.Status != conformance.Skipped || r.Verbose:
		r.keep(conformance.WriteResult(r.Stdout, result))
	default:
		if r.skipped[reason] == nil {
			r.reasons = append(r.reasons, reason)
		}
		r.skipped[reason] = append(r.skipped[reason], result.Name)
	}
}

func (r *Report) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// End writes what can be said only now, and returns ErrFailed if a check has
// failed.
func (r *Report) End(subject string, results []conformance.Result) error {
	if r.Format == JSON {
		r.keep(program.WriteJSON(r.Stdout, r.document(subject, results)))
	} else {
		for _, reason := range r.reasons {
			names := r.skipped[reason]
			_, err := fmt.Fprintf(r.Stdout, "skipped %d: %s (%s)\n", len(names), reason, strings.Join(names, ", "))
			r.keep(err)
		}
		for _, result := range results {
			for _, what := range result.Left {
				_, err := fmt.Fprintf(r.Stdout, "left behind by %s: %s\n", result.Name, what)
				r.keep(err)
			}
		}
		_, err := fmt.Fprintln(r.Stdout, conformance.Summarize(results))
		r.keep(err)
	}
	if r.junit != nil {
		err := errors.Join(conformance.WriteJUnit(r.junit, subject, results), r.junit.Close())
		if err != nil {
			r.keep(fmt.Errorf("--junit: %w", err))
		}
	}
	if conformance.Summarize(results).Failed > 0 {
		return errors.Join(r.err, ErrFailed)
	}
	return r.err
}

// Document is the report with -o json.
type Document struct {
	Provider string  `json:"provider"`
	Core     string  `json:"core,omitempty"`
	Passed   int     `json:"passed"`
	Failed   int     `json:"failed"`
	Skipped  int     `json:"skipped"`
	Seconds  float64 `json:"seconds"`
	Checks   []Check `json:"checks"`
}

// Check is a check in JSON, with its result if it ran.
type Check struct {
	Name     string   `json:"name"`
	Contract string   `json:"contract"`
	Status   string   `json:"status,omitempty"`
	Seconds  float64  `json:"seconds,omitempty"`
	Messages []string `json:"messages,omitempty"`
	Left     []string `json:"left,omitempty"`
}

func (r *Report) document(subject string, results []conformance.Result) Document {
	s := conformance.Summarize(results)
	all := Document{Provider: subject, Core: r.Core, Passed: s.Passed, Failed: s.Failed, Skipped: s.Skipped, Seconds: s.Took.Seconds()}
	for _, r := range results {
		all.Checks = append(all.Checks, Check{r.Name, r.Contract, string(r.Status), r.Took.Seconds(), r.Messages, r.Left})
	}
	return all
}
