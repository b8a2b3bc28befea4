// SPDX-License-Identifier: Apache-2.0

package checkreport

import (
	"errors"
	"fmt"
	"io"
	"regexp"
)

// Exit codes of a kit.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// ErrFailed has been told by the report.
var ErrFailed = errors.New("a check failed")

// UsageError is what keeps anything from being checked.
type UsageError struct{ error }

// Usage makes err a UsageError.
func Usage(err error) error { return UsageError{err} }

// Usagef is Usage of fmt.Errorf.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

func (e UsageError) Unwrap() error { return e.error }

// Exit says on stderr what the reports have not, and returns the exit code.
func Exit(program string, err error, stderr io.Writer) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrFailed):
		return ExitFailed
	}
	fmt.Fprintf(stderr, "%s: %v\n", program, err)
	if errors.As(err, &UsageError{}) {
		return ExitUsage
	}
	return ExitFailed
}

// Choose returns the checks whose names match --run.
func Choose[C any](program, run string, checks []C, name func(C) string) ([]C, error) {
	pattern, err := regexp.Compile(run)
	if err != nil {
		return nil, Usagef("--run: %w", err)
	}
	var chosen []C
	for _, check := range checks {
		if pattern.MatchString(name(check)) {
			chosen = append(chosen, check)
		}
	}
	if len(chosen) == 0 {
		return nil, Usagef("--run %q matches no check; %s --list has them all", run, program)
	}
	return chosen, nil
}
