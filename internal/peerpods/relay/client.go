// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
)

// Client controls a relay. Its methods are those of the control service.
type Client struct {
	pb.RelayService
	conn *ttrpc.Client
}

// Dial connects to a relay that is running.
func Dial(ctx context.Context, socket string) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	client := ttrpc.NewClient(conn)
	return &Client{pb.NewRelayClient(client), client}, nil
}

// Close ends the connection; the relay goes on.
func (c *Client) Close() error { return c.conn.Close() }

// EnsureOptions say which relay is wanted.
type EnsureOptions struct {
	// Socket is its control socket.
	Socket string
	// Binary is the agent-relay program.
	Binary string
	// LogFile receives its output.
	LogFile string
}

// startWait bounds the wait for a relay that was started.
const startWait = 30 * time.Second

// Ensure returns a connection to the relay at the socket, which it starts if
// nobody serves it: in a session of its own, so that it outlives this process
// whatever happens to it. Callers in several processes start only one.
func Ensure(ctx context.Context, o EnsureOptions) (*Client, error) {
	if client, err := dialAlive(ctx, o.Socket); err == nil {
		return client, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.Socket), 0o755); err != nil {
		return nil, err
	}
	lock, err := statefile.Acquire(ctx, o.Socket+".lock")
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	if client, err := dialAlive(ctx, o.Socket); err == nil {
		return client, nil
	}
	return start(ctx, o)
}

// dialAlive also makes sure that the relay answers.
func dialAlive(ctx context.Context, socket string) (*Client, error) {
	client, err := Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	if _, err := client.List(ctx, &pb.ListRequest{}); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

func start(ctx context.Context, o EnsureOptions) (*Client, error) {
	log, err := os.OpenFile(o.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of agent-relay: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(o.Binary, "-socket", o.Socket)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	// Nothing of our environment may matter to it, and some of it is secret.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Close what our own parent left open: otherwise a pipe would stay open as long as
	// the relay lives, and its reader would wait for ever. Kernels before 5.11 cannot do
	// this; that is not a reason to fail.
	unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start agent-relay: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		client, err := dialAlive(ctx, o.Socket)
		if err == nil {
			return client, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("agent-relay ended at its start: %v\n%s", err, lastLines(o.LogFile))
		case <-ctx.Done():
			return nil, fmt.Errorf("agent-relay does not serve %s: %w; see %s", o.Socket, err, o.LogFile)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func lastLines(path string) string {
	data, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
