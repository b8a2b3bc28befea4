// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
)

// imageOptions are the flags of `image import`.
type imageOptions struct {
	provider, plugin   string
	name, format, arch string
}

func (a *App) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Bring pod VM images into a cloud", Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.imageImportCommand())
	return cmd
}

func (a *App) imageImportCommand() *cobra.Command {
	var o imageOptions
	cmd := &cobra.Command{
		Use:   "import LOCATION [-- SETTING...]",
		Short: "Make an image of a cloud from a file or an object",
		Long: `Makes an image of a cloud from a file, or from an object where the cloud takes
images only from its own store (oss://BUCKET/OBJECT and the like). Shows what goes
on and writes the image's id to standard output.

It runs the provider's own program, provider-NAME, which is looked for beside
outrigger and then on PATH. Credentials and settings are those of the
environment, as for cloud-api-adaptor; after -- they can be given as flags. What
is about instances alone, such as an image's id, need not be set. Which formats
and locations a cloud takes is on its page, docs/providers/NAME.md.`,
		Example: `  outrigger image import --provider libvirt --name podvm-2.qcow2 bin/podvm/podvm.qcow2
  outrigger image import --provider libvirt --name podvm-2.qcow2 bin/podvm/podvm.qcow2 -- -uri qemu:///system -pool-name default`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n > 1 || n < 0 && len(args) > 1 {
				return fmt.Errorf("one LOCATION at a time; settings of the provider come after --")
			}
			return a.importImage(o, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.provider, "provider", "", "cloud provider")
	fromEnvironment(flags, "provider", "CLOUD_PROVIDER")
	flags.StringVar(&o.plugin, "plugin", "", "the provider's program, when it is not provider-NAME")
	flags.StringVar(&o.name, "name", "", "what the cloud shall call the image (required)")
	flags.StringVar(&o.format, "format", "", "qcow2, raw, vhd, gcp or ova, when the location's ending does not tell")
	flags.StringVar(&o.arch, "arch", "amd64", "architecture: amd64, arm64 or s390x")
	cobra.CheckErr(cmd.MarkFlagRequired("name"))
	return cmd
}

func (a *App) importImage(o imageOptions, location string, settings []string) error {
	path, err := o.program()
	if err != nil {
		return err
	}
	if o.format == "" {
		if o.format, err = provider.ImageFormat(location); err != nil {
			return fmt.Errorf("%w; say it with --format", err)
		}
	}
	source := provider.ImageSource{Name: o.name, Location: location, Format: o.format, Arch: o.arch}
	if err := errors.Join(source.Check(), source.CheckFile()); err != nil {
		return err
	}
	args := []string{"--import", location, "--import-name", o.name, "--import-arch", o.arch, "--import-format", o.format}
	// The program removes what it has made when it gets a signal to end. It gets the
	// terminal's interrupt and hang-up itself and must not get them twice.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(interrupts, syscall.SIGHUP)
	}
	defer signal.Stop(interrupts)
	cmd := exec.CommandContext(ctx, path, append(args, settings...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = a.Stdout, a.Stderr
	var exit *exec.ExitError
	err = cmd.Run()
	switch {
	case errors.As(err, &exit) && exit.Exited():
		return exitError{Code: exit.ExitCode()} // it has said why
	case err != nil:
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}

// program finds the provider's own program.
func (o imageOptions) program() (string, error) {
	if o.plugin != "" {
		return filepath.Abs(o.plugin)
	}
	if o.provider == "" {
		return "", errors.New("--provider is missing, and CLOUD_PROVIDER is not set")
	}
	name := "provider-" + o.provider
	path, err := program.Find(name)
	if err != nil {
		return "", fmt.Errorf("program %s is neither beside outrigger nor on PATH: build it with `make bin/%[1]s`, or name another with --plugin", name)
	}
	return path, nil
}
