// SPDX-License-Identifier: Apache-2.0

package checkreport

import (
	"context"
	"errors"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/program"
)

// Complete makes cmd run checks with run, whose writers are standard output and standard
// error. It takes no arguments, and an error about one says instead what to do. Mistakes
// in the command line are [program.UsageError].
func Complete(cmd *cobra.Command, instead string, run func(ctx context.Context, stdout, stderr io.Writer) error) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return program.Usagef("unexpected argument %q: %s", args[0], instead)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return program.Usagef("%w; all flags: %s --help", err, cmd.Name())
	})
}

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
