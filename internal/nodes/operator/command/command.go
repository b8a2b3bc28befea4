// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/nodes/operator/configsync"
	"github.com/outrigger/outrigger/internal/nodes/operator/controller"
	"github.com/outrigger/outrigger/internal/nodes/operator/injector"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

// name is the program's.
const name = "ccm-operator"

// errBroken has been told in full by what the command printed.
var errBroken = errors.New("rules are broken")

// Main runs the program of this process and returns its exit code.
func Main() int {
	return program.UntilSignal(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if errors.Is(err, errBroken) {
		return program.ExitError
	}
	return program.Exit(name, stderr, err)
}

// Command returns the whole command line, also for docs/reference.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Keep a cluster's cloud controller manager right",
		Long: `ccm-operator installs the cloud controller manager that fits a cluster, and keeps it
right. What it installs is data: a bundle is a folder with manifests and a file
that says which images, configuration and secrets they need. Bundles of many
clouds are built in; yours needs no code.`,
		Example: `  ccm-operator bundle list                      # which clouds there are
  ccm-operator bundle verify ./mycloud          # does my bundle keep the rules?
  ccm-operator render --platform aws --flavor kubernetes --image cloudControllerManagerAWS=REGISTRY/IMAGE`,
		Version:      version.String(),
		SilenceUsage: true, SilenceErrors: true,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return program.Usagef("%w; all flags: %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(commands()...)
	return root
}

// commands returns the parts of the program, each of which is a program of its own.
func commands() []*cobra.Command {
	daemons := []*cobra.Command{controller.Command(os.Getenv, knownBundles), configsync.Command(os.Getenv), injector.Command()}
	for _, d := range daemons {
		d.Args = noArgs
	}
	return append(daemons, renderCommand(), diffCommand(), bundleCommand())
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return program.Usagef("unknown command %q; all commands: %s --help", args[0], cmd.CommandPath())
	}
	return program.Usagef("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
}

// outputFlag adds -o; the first form is the default.
func outputFlag(cmd *cobra.Command, into *string, forms ...string) {
	cmd.Flags().StringVarP(into, "output", "o", forms[0], "form of the output: "+strings.Join(forms, ", "))
	complete(cmd, "output", forms...)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(forms, *into) {
			return program.Usagef("--output %q: want %s", *into, strings.Join(forms, " or "))
		}
		return nil
	}
}

// complete completes a flag's value.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag, or it has one
	}
}

func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}
