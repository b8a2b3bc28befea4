// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	pb "github.com/outrigger/outrigger/internal/protocol/relay"
)

// DefaultSocket is the control socket of a node's relay.
const DefaultSocket = "/run/peerpod/relay.sock"

// DaemonOptions configure Run.
type DaemonOptions struct {
	// Socket is the control socket, for this user alone.
	Socket string
	// ExitWhenIdle, if not 0, ends Run when nothing has been served that long.
	ExitWhenIdle time.Duration
	Logger       *slog.Logger
}

// Run serves the control socket until ctx ends. A socket that another relay
// serves is an error; one that nobody serves any more is replaced.
func Run(ctx context.Context, o DaemonOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := listenControl(ctx, o.Socket)
	if err != nil {
		return err
	}
	control, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixCredentialsFunc(allow)))
	if err != nil {
		return err
	}
	server := New(o.Logger)
	pb.RegisterRelayService(control, server)
	if o.ExitWhenIdle > 0 {
		go func() { server.WaitIdle(ctx, o.ExitWhenIdle); cancel() }()
	}
	defer context.AfterFunc(ctx, func() { control.Close() })()
	o.Logger.Info("agent-relay is ready", "socket", o.Socket, "pid", os.Getpid())
	err = control.Serve(context.WithoutCancel(ctx), listener)
	server.Close()
	if errors.Is(err, ttrpc.ErrServerClosed) && ctx.Err() != nil {
		return nil
	}
	return err
}

// allow admits our own user and root: what comes over the control socket are
// private keys.
func allow(peer *unix.Ucred) error {
	if int(peer.Uid) != os.Geteuid() && peer.Uid != 0 {
		return fmt.Errorf("user %d may not control this relay", peer.Uid)
	}
	return nil
}

func listenControl(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("-socket: %w", err)
	}
	if other, err := dialAlive(ctx, socket); err == nil {
		defer other.Close()
		list, _ := other.List(ctx, &pb.ListRequest{})
		return nil, fmt.Errorf("-socket %s: already served by process %d", socket, list.GetPid())
	}
	listener, err := listenUnix(socket)
	if err != nil {
		return nil, fmt.Errorf("-socket: %w", err)
	}
	return listener, nil
}

// listenUnix listens at a path, for this user alone, in place of a socket that nobody
// serves any more.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
