// SPDX-License-Identifier: Apache-2.0

// Package doctor checks whether this machine can run pods in VMs and says how
// to fix what is missing. It changes nothing.
package doctor

import (
	"context"
	"fmt"
	"io"
)

// Status of a check.
type Status string

// Statuses. A warning is something that works less well, or perhaps not.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Error   Status = "error"
)

// Result is what one check found.
type Result struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Detail is what is there.
	Detail string `json:"detail"`
	// Fix is what to do; empty when all is well.
	Fix string `json:"fix,omitempty"`
}

// Check checks one thing. Checks must be quick and may not change anything.
type Check struct {
	Name string
	Run  func(context.Context) Result
}

// Report is what all checks found.
type Report struct {
	Status  Status   `json:"status"`
	Results []Result `json:"results"`
}

// Run runs all checks. The report is as bad as its worst result.
func Run(ctx context.Context, checks []Check) Report {
	report := Report{Status: OK, Results: []Result{}}
	for _, c := range checks {
		r := c.Run(ctx)
		r.Name = c.Name
		report.Results = append(report.Results, r)
		if r.Status == Error || r.Status == Warning && report.Status == OK {
			report.Status = r.Status
		}
	}
	return report
}

// ExitCode returns 0 if all is well, 1 for warnings, 2 for errors.
func (r Report) ExitCode() int {
	return map[Status]int{OK: 0, Warning: 1, Error: 2}[r.Status]
}

// Print writes a report about this machine for people.
func (r Report) Print(w io.Writer) {
	r.PrintResults(w)
	switch r.Status {
	case OK:
		fmt.Fprintln(w, "This machine can run pods in VMs.")
	case Warning:
		fmt.Fprintln(w, "This machine can run pods in VMs, with the warnings above.")
	case Error:
		fmt.Fprintln(w, "This machine cannot run pods in VMs yet: fix what FAIL says.")
	}
}

// PrintResults writes the results for people and leaves the verdict to the
// caller.
func (r Report) PrintResults(w io.Writer) {
	sign := map[Status]string{OK: "ok  ", Warning: "warn", Error: "FAIL"}
	for _, c := range r.Results {
		fmt.Fprintf(w, "%s  %-12s %s\n", sign[c.Status], c.Name, c.Detail)
		if c.Fix != "" {
			fmt.Fprintf(w, "      %-12s -> %s\n", "", c.Fix)
		}
	}
}

// Good says that all is well.
func Good(format string, args ...any) Result {
	return Result{Status: OK, Detail: fmt.Sprintf(format, args...)}
}

// Warn is a [Warning] with what to do.
func Warn(fix, format string, args ...any) Result {
	return Result{Status: Warning, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

// Fail is an [Error] with what to do.
func Fail(fix, format string, args ...any) Result {
	return Result{Status: Error, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}
