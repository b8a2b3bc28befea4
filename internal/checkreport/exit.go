// SPDX-License-Identifier: Apache-2.0

package checkreport

import (
	"errors"
	"io"
	"regexp"

	"github.com/outrigger/outrigger/internal/program"
)

// ErrFailed has been told by the report.
var ErrFailed = errors.New("a check failed")

// Exit prints what the reports have not, and returns the exit code: program.ExitError if a
// check failed.
func Exit(name string, err error, stderr io.Writer) int {
	if errors.Is(err, ErrFailed) {
		return program.ExitError
	}
	return program.Exit(name, stderr, err)
}

// Choose returns the checks whose names match --run.
func Choose[C any](command, run string, checks []C, name func(C) string) ([]C, error) {
	pattern, err := regexp.Compile(run)
	if err != nil {
		return nil, program.Usagef("--run: %w", err)
	}
	var chosen []C
	for _, check := range checks {
		if pattern.MatchString(name(check)) {
			chosen = append(chosen, check)
		}
	}
	if len(chosen) == 0 {
		return nil, program.Usagef("--run %q matches no check; %s --list has them all", run, command)
	}
	return chosen, nil
}
