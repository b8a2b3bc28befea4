// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/nodes/operator/configsync"
	"github.com/outrigger/outrigger/internal/nodes/operator/controller"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/injector"
	"github.com/outrigger/outrigger/internal/version"
)

// name is the program's.
const name = "ccm-operator"

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // something failed, or a rule is broken
	exitUsage = 2 // the command line is wrong
)

// errBroken has been told in full by what the command printed.
var errBroken = errors.New("rules are broken")

// usageError is one of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs the program of this process and returns its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errBroken):
		return exitError
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	if errors.As(err, new(usageError)) || errors.As(err, new(daemon.UsageError)) {
		return exitUsage
	}
	return exitError
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
		return usagef("%w; all flags: %s --help", err, cmd.CommandPath())
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
		return usagef("unknown command %q; all commands: %s --help", args[0], cmd.CommandPath())
	}
	return usagef("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
}

// outputFlag adds -o; the first form is the default.
func outputFlag(cmd *cobra.Command, into *string, forms ...string) {
	cmd.Flags().StringVarP(into, "output", "o", forms[0], "form of the output: "+strings.Join(forms, ", "))
	complete(cmd, "output", forms...)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(forms, *into) {
			return usagef("--output %q: want %s", *into, strings.Join(forms, " or "))
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
