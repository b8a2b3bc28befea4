// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// launch starts the program and waits until it has said what it is.
func (s *Supervisor) launch(ctx context.Context) (*child, wire.About, error) {
	c, err := s.spawn()
	if err != nil {
		return nil, wire.About{}, err
	}
	about, err := s.greet(ctx, c)
	if err != nil {
		c.stop(0)
		return nil, about, err
	}
	return c, about, nil
}

func (s *Supervisor) greet(ctx context.Context, c *child) (wire.About, error) {
	limited, cancel := context.WithTimeout(ctx, s.Ready)
	defer cancel()
	var err error
	if c.conn, err = dial(s.socket(), c.exited); err != nil {
		return wire.About{}, err
	}
	about, err := wire.Info(limited, c.conn, wire.PluginName(s.Path))
	if err != nil {
		return about, s.greeting(ctx, limited, c, err)
	}
	return about, CheckName(s.Name, about, s.Path)
}

// greeting explains why there was no first answer.
func (s *Supervisor) greeting(ctx, limited context.Context, c *child, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: provider plugin %s: the start was given up: %w", provider.ErrUnavailable, s.Path, ctx.Err())
	case limited.Err() != nil:
		return fmt.Errorf("%w: provider plugin %s did not answer on its socket (%s) within %s and was killed%s: is it a provider plugin, made with package serve?",
			provider.ErrUnavailable, s.Path, SocketVariable, s.Ready, c.lines.quote())
	case errors.Is(err, provider.ErrUnavailable): // the connection broke
		select {
		case <-c.exited:
			return fmt.Errorf("%w: provider plugin %s did not start: %w", provider.ErrUnavailable, s.Path, c.why())
		case <-time.After(exitNotice):
		}
		return fmt.Errorf("%w: provider plugin %s does not speak the provider contract on its socket: is it made with package serve? (%w)", provider.ErrInvalidArgument, s.Path, err)
	}
	return err
}

// CheckName refuses a plugin that is another provider than the one asked for.
func CheckName(asked string, about wire.About, path string) error {
	if strings.EqualFold(asked, about.Name) {
		return nil
	}
	return fmt.Errorf("%w: %s is the provider %q and not %q, which was asked for: set CLOUD_PROVIDER=%s or name another plugin",
		provider.ErrInvalidArgument, path, about.Name, asked, about.Name)
}

// dial returns a connection to a socket that need not be there yet; it comes
// up as soon as the socket does. It fails when the process ends.
func dial(path string, exited <-chan struct{}) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return connect(ctx, path, exited)
		}))
}

// connectEvery is how often to look for the socket of a starting process.
const connectEvery = 2 * time.Millisecond

func connect(ctx context.Context, path string, exited <-chan struct{}) (net.Conn, error) {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(connectEvery):
		case <-exited:
			return nil, errEnded
		case <-ctx.Done():
			return nil, err
		}
	}
}

// lost reports whether the transport failed, rather than the provider, whose own
// errors have details. Calls over a connection that was closed because the
// process has ended are cancelled.
func (c *child) lost(err error) bool {
	s := status.Convert(err)
	return len(s.Details()) == 0 && (s.Code() == codes.Unavailable || s.Code() == codes.Canceled && c.gone())
}
