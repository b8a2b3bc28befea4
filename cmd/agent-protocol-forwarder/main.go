// SPDX-License-Identifier: Apache-2.0

// Command agent-protocol-forwarder runs in a pod VM: it connects the node,
// over TLS, with the agent, over a unix socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/outrigger/outrigger/internal/guest/forwarder"
	"github.com/outrigger/outrigger/internal/guest/hold"
	"github.com/outrigger/outrigger/internal/version"
)

func main() {
	hold.Wait()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command, err := forwarder.ParseCommand(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "agent-protocol-forwarder:", err)
		os.Exit(2)
	case command.Version:
		fmt.Println("agent-protocol-forwarder", version.Version)
		return
	}
	if err := run(ctx, command); err != nil {
		fmt.Fprintln(os.Stderr, "agent-protocol-forwarder:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command *forwarder.Command) error {
	options, err := command.Options()
	if err != nil {
		return err
	}
	options.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	options.Ready = func(net.Addr) { daemon.SdNotify(false, daemon.SdNotifyReady) }
	f, err := forwarder.New(options)
	if err != nil {
		return err
	}
	defer daemon.SdNotify(false, daemon.SdNotifyStopping)
	return f.Run(ctx)
}
