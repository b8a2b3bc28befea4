// SPDX-License-Identifier: Apache-2.0

// Command agent-relay carries the agent protocol between the shims of a node
// and the agents in their pod VMs. cloud-api-adaptor starts and steers it.
package main

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

	"github.com/outrigger/outrigger/internal/peerpods/relay"
	"github.com/outrigger/outrigger/internal/version"
)

func main() {
	// A terminal's interrupt is for the adaptor: this process goes on.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "agent-relay:", err)
		os.Exit(2)
	case options == nil:
		fmt.Println("agent-relay", version.Version)
		return
	}
	if err := relay.Run(ctx, *options); err != nil {
		fmt.Fprintln(os.Stderr, "agent-relay:", err)
		os.Exit(1)
	}
}

// parse returns nil options when only the version is wanted.
func parse(args []string, w io.Writer) (*relay.DaemonOptions, error) {
	o := &relay.DaemonOptions{}
	flags := flag.NewFlagSet("agent-relay", flag.ContinueOnError)
	flags.SetOutput(w)
	flags.StringVar(&o.Socket, "socket", relay.DefaultSocket, "control `socket`")
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
