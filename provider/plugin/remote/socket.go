// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// Socket is the connection to a provider that somebody else runs. It comes
// back by itself when the server does.
type Socket struct {
	path string
	wait time.Duration
	conn *grpc.ClientConn

	closing  sync.Once
	closeErr error

	mu  sync.Mutex
	why error // why the last try to connect failed
}

// Dial connects to a server and asks what it is, within the time ready. Later
// calls wait for a lost server for the time wait.
func Dial(ctx context.Context, path string, ready, wait time.Duration) (*Socket, wire.About, error) {
	if err := CheckSocket(path); err != nil {
		return nil, wire.About{}, err
	}
	s := &Socket{path: path, wait: wait}
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(s.connect))
	if err != nil {
		return nil, wire.About{}, err
	}
	s.conn = conn
	about, err := s.greet(ctx, ready)
	if err != nil {
		return nil, about, errors.Join(err, conn.Close())
	}
	return s, about, nil
}

func (s *Socket) greet(ctx context.Context, ready time.Duration) (wire.About, error) {
	limited, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	about, err := wire.Info(limited, s.conn, wire.PluginName(s.path))
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return about, fmt.Errorf("%w: no provider answers on the socket %s within %s: %w", provider.ErrUnavailable, s.path, ready, cmp.Or(s.lastFailure(), errSilent))
	}
	return about, err
}

var errSilent = errors.New("the server is silent; is it a provider, made with package serve?")

// CheckSocket returns why the path is not a socket that can be trusted.
func CheckSocket(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no socket %s: start the provider that serves it (in a container: is its folder shared?)", provider.ErrUnavailable, path)
	case err != nil:
		return fmt.Errorf("%w: %w", provider.ErrPermissionDenied, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: %s is not a unix socket (%s)", provider.ErrInvalidArgument, path, info.Mode())
	case info.Mode()&0o002 != 0:
		return fmt.Errorf("%w: the socket %s is writable for everybody (mode %#o): run chmod o-w %[2]s", provider.ErrPermissionDenied, path, info.Mode().Perm())
	}
	owner, own := info.Sys().(*syscall.Stat_t).Uid, uint32(os.Geteuid())
	if owner != 0 && owner != own {
		return fmt.Errorf("%w: the socket %s belongs to uid %d: it must belong to root or to uid %d, which this program has", provider.ErrPermissionDenied, path, owner, own)
	}
	return nil
}

// tryEvery is how often to look for a server that is gone.
const tryEvery = 20 * time.Millisecond

// connect makes one attempt for gRPC. The attempt lasts until there is a server again
// or gRPC gives up, so that nobody has to wait for gRPC's backoff.
func (s *Socket) connect(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	for {
		conn, err := s.dialOnce(ctx, &dialer, path)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		select {
		case <-time.After(tryEvery):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (s *Socket) dialOnce(ctx context.Context, dialer *net.Dialer, path string) (net.Conn, error) {
	err := CheckSocket(path) // it may be another since the last time
	var conn net.Conn
	if err == nil {
		conn, err = dialer.DialContext(ctx, "unix", path)
	}
	if ctx.Err() == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.why = err
	}
	return conn, err
}

func (s *Socket) lastFailure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// Conn implements [Backend].
func (s *Socket) Conn(ctx context.Context) (grpc.ClientConnInterface, func(error) error, error) {
	limited, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	for {
		state := s.conn.GetState()
		switch state {
		case connectivity.Ready:
			return s.conn, s.explain, nil
		case connectivity.Shutdown:
			return nil, nil, fmt.Errorf("%w: the connection to the provider at %s was closed", provider.ErrUnavailable, s.path)
		case connectivity.Idle:
			s.conn.Connect()
		}
		if !s.conn.WaitForStateChange(limited, state) {
			return nil, nil, s.gone(ctx)
		}
	}
}

func (s *Socket) gone(ctx context.Context) error {
	err := fmt.Errorf("%w: no provider answers on the socket %s: %w", provider.ErrUnavailable, s.path, cmp.Or(s.lastFailure(), errSilent))
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return err
}

func (s *Socket) explain(err error) error {
	answer := status.Convert(err)
	if answer.Code() != codes.Unavailable || len(answer.Details()) > 0 {
		return err
	}
	return fmt.Errorf("%w: the provider at %s was lost during the call, which may have been carried out: %s", provider.ErrUnavailable, s.path, answer.Message())
}

// Close closes the connection; the server goes on.
func (s *Socket) Close() error {
	s.closing.Do(func() { s.closeErr = s.conn.Close() })
	return s.closeErr
}
