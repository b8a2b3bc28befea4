// SPDX-License-Identifier: Apache-2.0

package checkreport

import (
	"context"
	"io"

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
