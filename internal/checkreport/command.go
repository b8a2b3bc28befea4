// SPDX-License-Identifier: Apache-2.0

package checkreport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

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

// Kit are checks to choose from, and the flags that the command lines have in common.
type Kit[C any] struct {
	Checks []C
	// Row is what a list says of a check.
	Row func(C) Check

	List, Verbose bool
	Run           string
	Format, JUnit string
	Timeout       time.Duration
}

// Bind adds the flags to those of a command.
func (k *Kit[C]) Bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&k.List, "list", false, "list the checks, one a line, and check nothing")
	f.StringVar(&k.Run, "run", "", "only the checks whose names match this regular expression")
	f.StringVarP(&k.Format, "output", "o", Text, "report on standard output: text or json")
	f.BoolVarP(&k.Verbose, "verbose", "v", false, "each skipped check in a line of its own, and not one line for each reason")
	f.StringVar(&k.JUnit, "junit", "", "write a JUnit report to this file too")
	f.DurationVar(&k.Timeout, "timeout", 0, "end of the whole run; what is made until then is deleted (default: none)")
	cmd.MarkFlagFilename("junit", "xml")
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{Text, JSON}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("run", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, check := range k.Checks {
			names = append(names, k.Row(check).Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// Choose returns the checks whose names match --run. command has the name of the program.
func (k *Kit[C]) Choose(command string) ([]C, error) {
	if k.Format != Text && k.Format != JSON {
		return nil, program.Usagef("-o %q: want text or json", k.Format)
	}
	pattern, err := regexp.Compile(k.Run)
	if err != nil {
		return nil, program.Usagef("--run: %w", err)
	}
	chosen := slices.DeleteFunc(slices.Clone(k.Checks), func(check C) bool { return !pattern.MatchString(k.Row(check).Name) })
	if len(chosen) == 0 {
		return nil, program.Usagef("--run %q matches no check; %s --list has them all", k.Run, command)
	}
	return chosen, nil
}

// WriteList is --list.
func (k *Kit[C]) WriteList(w io.Writer, checks []C) error {
	var rows []Check
	width := 0
	for _, check := range checks {
		rows = append(rows, k.Row(check))
		width = max(width, len(k.Row(check).Name))
	}
	if k.Format == JSON {
		return program.WriteJSON(w, rows)
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "%-*s  %s\n", width, row.Name, row.Contract); err != nil {
			return err
		}
	}
	return nil
}
