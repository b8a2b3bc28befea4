// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/guest/forwarder"
	"github.com/outrigger/outrigger/internal/guest/hold"
	"github.com/outrigger/outrigger/internal/guest/userdata"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/internal/version"
)

const usage = `process-user-data fetches the user-data of a pod VM and writes its files.

  process-user-data provision-files [flags]   fetch, check, write; exit 1 when
                                              there is none in time or it is bad;
                                              in a VM of a pool then wait for a pod
  process-user-data -v | --version            print the version

Flags of provision-files:
  -t, --user-data-fetch-timeout SECONDS   how long to wait (default 180)
  --seed-dir DIR          where the NoCloud seed is mounted (default /media/cidata)
  --config-drive-dir DIR  where the config drive is mounted (default /media/config-2)
  --platform NAME         the cloud, one of aws, azure, gcp, alibabacloud,
                          openstack, vsphere, unknown; by default what the
                          hardware tells (DMI, CPUID). unknown asks IBM's and
                          OpenStack's metadata services
  --allow-imds-v1         take user-data from AWS or Alibaba Cloud without a
                          session token where the service gives none
  --output-dir DIR        where files go (default /run/peerpod)
`

// errUsage is a wrong command line.
var errUsage = program.UsageError(errors.New("wrong usage; see process-user-data --help"))

// Main is process-user-data.
func Main() {
	err := program.UntilSignal(func(ctx context.Context) error { return runCommand(ctx, os.Args[1:], os.Stdout) })
	os.Exit(program.Exit("process-user-data", os.Stderr, err))
}

func runCommand(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stdout, usage)
		return errUsage
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		_, err := fmt.Fprint(stdout, usage)
		return err
	case "-v", "-version", "--version", "version":
		_, err := fmt.Fprintln(stdout, "process-user-data", version.Version)
		return err
	case "provision-files":
		return provisionFiles(ctx, args[1:], stdout)
	}
	return fmt.Errorf("unknown command %q: %w", args[0], errUsage)
}

func provisionFiles(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("provision-files", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var seconds int
	for _, name := range []string{"t", "user-data-fetch-timeout"} {
		flags.IntVar(&seconds, name, int(userdata.DefaultTimeout.Seconds()), "")
	}
	var where Options
	flags.StringVar(&where.SeedDir, "seed-dir", userdata.DefaultSeedDir, "")
	flags.StringVar(&where.ConfigDriveDir, "config-drive-dir", ConfigDriveDir, "")
	flags.BoolVar(&where.AllowV1, "allow-imds-v1", false, "")
	platform := flags.String("platform", "", "")
	output := flags.String("output-dir", userdata.DefaultDir, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err := fmt.Fprint(stdout, usage)
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: %w", flags.Arg(0), errUsage)
	case seconds <= 0:
		return fmt.Errorf("--user-data-fetch-timeout %d: want at least 1 second: %w", seconds, errUsage)
	}
	chosen, err := Choose(*platform, ReadHardware(DMIDir))
	if err != nil {
		return fmt.Errorf("--platform: %w: %w", err, errUsage)
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	logger.Info("looking for user-data", "platform", chosen)
	options := userdata.Options{
		Sources:  Sources(chosen, where),
		Dir:      *output,
		Timeout:  time.Duration(seconds) * time.Second,
		Logger:   logger,
		Marks:    marks.Beside(forwarder.DefaultAgentSocket),
		Rehearse: func(ctx context.Context, images []string) error { return rehearse(ctx, logger, images) },
	}
	hold.Wait(userdata.Prepare)
	if err := userdata.Provision(ctx, options); err != nil {
		return err
	}
	// Other programs of the image may tell it too: it is not for this
	// one to keep the VM from starting.
	if err := Announce(ctx, chosen); err != nil {
		logger.Error("cannot report this VM to the platform", "error", err)
	}
	return userdata.AwaitPod(ctx, options, ":"+handover.Port)
}

// rehearse has the image's agent, if it can do that, pull images and run a container once. A VM in which that fails
// waits nevertheless: the pod will have the same error.
func rehearse(ctx context.Context, logger *slog.Logger, images []string) error {
	began := time.Now()
	out, err := exec.CommandContext(ctx, "podvm-agent", "-rehearse", "-prefetch="+strings.Join(images, ",")).CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound) && len(images) == 0:
		return nil
	case err != nil:
		logger.Warn("rehearsal of a pod's start", "error", err, "output", string(out))
		return fmt.Errorf("rehearsal of a pod's start: %w: %s", err, out)
	}
	logger.Info("rehearsed a pod's start", "took", time.Since(began), "images", len(images))
	return nil
}
