// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// socketPath returns the path of an address such as unix:///run/p.sock.
func socketPath(address string) (string, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return "", usagef("--listen %q is not a unix:///path", address)
	}
	if err := checkPath(path); err != nil {
		return "", fmt.Errorf("--listen: %w", err)
	}
	return path, nil
}

// maxPath is the longest path of a socket: sun_path of unix(7) without its
// final zero.
const maxPath = 107

func checkPath(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return usagef("the path %q of the socket is not absolute", path)
	case len(path) > maxPath:
		return usagef("the path %q of the socket has %d bytes and may have %d", path, len(path), maxPath)
	}
	return nil
}

// listen makes a socket for this user alone. A socket that nobody answers on
// is replaced.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		// The mode that a socket has before bind is that of its file: there
		// is no instant at which others may connect.
		if failed := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); failed != nil {
			return failed
		}
		return err
	}}
	return private.Listen(context.Background(), "unix", path)
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return usagef("%s is there and is not a socket: remove it or choose another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return usagef("somebody serves on %s already: stop that or choose another path", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("whether somebody serves on %s is not known: %w", path, err)
	}
	return os.Remove(path)
}

// patience is how long calls may take to finish.
type patience struct{ stopped, orphaned time.Duration }

var standardPatience = patience{StopTimeout, orphanTimeout}

func (p patience) after(cause error) time.Duration {
	if errors.Is(cause, errOrphan) {
		return p.orphaned
	}
	return p.stopped
}

// serve serves until ctx ends and the calls that run have finished, or have
// had their time.
func serve(ctx context.Context, listener net.Listener, server *wire.Server, patience patience) error {
	rpc := grpc.NewServer(wire.ServerOptions()...)
	server.Register(rpc)
	ended := make(chan error, 1)
	go func() { ended <- rpc.Serve(listener) }()
	select {
	case err := <-ended:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	slog.Debug("Stopping", "reason", cause)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		rpc.GracefulStop()
	}()
	late := time.AfterFunc(patience.after(cause), rpc.Stop) // ends contexts and connections
	<-stopped
	late.Stop()
	return server.Close()
}
