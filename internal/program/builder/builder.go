// SPDX-License-Identifier: Apache-2.0

// Package builder is the frame of programs with one command, build, which builds something
// and prints a summary of it.
package builder

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/program"
)

// Root returns the command line of the program name. It gives build the flag --out.
func Root(name, short string, build *cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         short,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return program.Usagef("unknown command %q; there is `%s build`", args[0], name)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return program.Usagef("%w; all flags: %s -h", err, cmd.CommandPath())
	})
	format := build.Flags().StringP("out", "o", "text", "summary on standard output: text or json")
	build.Args = func(cmd *cobra.Command, args []string) error {
		if *format != "text" && *format != "json" {
			return program.Usagef("-o %q: want text or json", *format)
		}
		return program.UsageError(cobra.NoArgs(cmd, args))
	}
	root.AddCommand(build)
	return root
}

// Print prints the summary of a build as JSON, or as text does.
func Print(build *cobra.Command, summary any, text func(io.Writer) error) error {
	out := build.OutOrStdout()
	if build.Flag("out").Value.String() != "json" {
		return text(out)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(summary)
}

// Cache returns the folder for what a program downloads.
func Cache(name string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "outrigger", name)
}
