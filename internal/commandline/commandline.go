// SPDX-License-Identifier: Apache-2.0

// Package commandline is what command lines share that are made of cobra's commands.
package commandline

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider/config"
)

// Root makes cmd the root of a command line, which shows its help when it is run without a
// command. Mistakes are [program.UsageError] and say where the help is.
func Root(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return program.Usagef("%w; all flags: %s --help", err, cmd.CommandPath())
	})
	return Group(cmd)
}

// Group makes cmd show its help when it is run without one of its commands.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// NoArgs refuses arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return program.Usagef("unknown command %q; all commands: %s --help", args[0], cmd.CommandPath())
	}
	return program.Usagef("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
}

// Settings adds a flag for each tagged field of the structs that these point to, see
// [config.Bind]. The function that it returns returns what is wrong with their values.
func Settings(f *pflag.FlagSet, structs ...any) (wrong func() error) {
	flags, errs := flag.NewFlagSet("", flag.ContinueOnError), make([]func() error, len(structs))
	for i, ptr := range structs {
		s := config.Bind(ptr)
		s.Dash = "--"
		s.AddFlags(flags)
		errs[i] = s.Err
	}
	f.AddGoFlagSet(flags)
	return func() (err error) {
		for _, of := range errs {
			err = errors.Join(err, of())
		}
		return err
	}
}

// Form adds -o, by its long name, for one of several forms of what is said; the first is
// the default.
func Form(cmd *cobra.Command, into *string, long, what string, forms ...string) {
	cmd.Flags().StringVarP(into, long, "o", forms[0], what+": "+strings.Join(forms, ", "))
	Complete(cmd, long, cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
	then := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(forms, *into) {
			return program.Usagef("--%s %q: want %s", long, *into, strings.Join(forms, " or "))
		}
		if then != nil {
			return then(cmd, args)
		}
		return nil
	}
}

var rpcWords = regexp.MustCompile(`rpc error: code = \w+ desc = |start sandbox [0-9a-f]{32,64}: `)

// WithoutProtocol leaves out the words of protocols, and ids that users did not give, which say nothing to them.
func WithoutProtocol(text string) string {
	return strings.ReplaceAll(rpcWords.ReplaceAllString(text, ""), "context deadline exceeded", "the time for it was over")
}

// Complete completes a flag's value.
func Complete(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // there is no such flag, or it has one
	}
}

// Cache returns the user's folder for what a program has downloaded.
func Cache(name string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "outrigger", name)
}
