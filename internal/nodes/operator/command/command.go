// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of ccm-operator.
package command

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/nodes/operator/configsync"
	"github.com/outrigger/outrigger/internal/nodes/operator/controller"
	"github.com/outrigger/outrigger/internal/nodes/operator/injector"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

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
	root := commandline.Root(&cobra.Command{
		Use:   name,
		Short: "Keep a cluster's cloud controller manager right",
		Long: `ccm-operator installs the cloud controller manager that fits a cluster, and keeps it
right. What it installs is data: a bundle is a folder with manifests and a file
that says which images, configuration and secrets they need. Bundles of many
clouds are built in; yours needs no code.`,
		Example: `  ccm-operator bundle list                      # which clouds there are
  ccm-operator bundle verify ./mycloud          # does my bundle keep the rules?
  ccm-operator render --platform aws --flavor kubernetes --image cloudControllerManagerAWS=REGISTRY/IMAGE`,
		Version: version.String(),
	})
	root.AddCommand(commands()...)
	return root
}

// commands returns the parts of the program, each of which is a program of its own.
func commands() []*cobra.Command {
	daemons := []*cobra.Command{controller.Command(os.Getenv, knownBundles), configsync.Command(os.Getenv), injector.Command()}
	for _, d := range daemons {
		d.Args = commandline.NoArgs
	}
	return append(daemons, renderCommand(), diffCommand(), bundleCommand())
}
