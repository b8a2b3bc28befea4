// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/netprobe"
	"github.com/outrigger/outrigger/internal/version"
)

// Program is the name of the relay's program.
const Program = "agent-relay"

// Main is that program: it serves until SIGTERM and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == netprobe.Argument {
		return netprobe.Main(args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == attest.Argument {
		return printAttestation(context.Background(), args[1:], stdout, stderr)
	}
	// A terminal's interrupt is for the adaptor: this process goes on.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, Program+":", err)
		return 2
	case options == nil:
		fmt.Fprintln(stdout, Program, version.Version)
		return 0
	}
	if err := Run(ctx, *options); err != nil {
		fmt.Fprintln(stderr, Program+":", err)
		return 1
	}
	return 0
}

// parse returns nil options when only the version is wanted.
func parse(args []string, w io.Writer) (*DaemonOptions, error) {
	o := &DaemonOptions{}
	flags := flag.NewFlagSet(Program, flag.ContinueOnError)
	flags.SetOutput(w)
	flags.StringVar(&o.Socket, "socket", DefaultSocket, "control `socket`")
	flags.DurationVar(&o.ExitWhenIdle, "exit-when-idle", 0, "end when nothing has been served for this `duration`; 0: never")
	var level slog.Level
	flags.TextVar(&level, "log-level", slog.LevelInfo, "DEBUG, INFO, WARN or ERROR")
	showVersion := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.ExitWhenIdle < 0:
		return nil, fmt.Errorf("-exit-when-idle %v is negative", o.ExitWhenIdle)
	case *showVersion:
		return nil, nil
	}
	o.Logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	return o, nil
}
