// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginfile"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// Options are the program to run and its timeouts.
type Options struct {
	// Name is the requested provider; the plugin must have it.
	Name string
	// Path is where the program came from, for messages.
	Path string
	// Program is executed; the supervisor closes it. See pluginfile.Seal.
	Program *os.File
	// Log receives the plugin's output.
	Log *slog.Logger
	// Getenv is only called for PATH, HOME and TMPDIR.
	Getenv func(string) string
	// Ready limits the time from the plugin's start to its first reply, and that of each
	// liveness check; 10 s by default.
	Ready time.Duration
	// Alive is the time between liveness checks; 30 s by default.
	Alive time.Duration
	// Grace is how long the plugin may take to end by itself; 3 s by default.
	Grace time.Duration
	// Wait is how long a call waits for a restart; 5 s by default.
	Wait time.Duration
	// LogLines limits the lines in the log per second; 200 by default.
	LogLines int
	// Restore is called with each new process, except the first, before it gets calls.
	Restore func(context.Context, grpc.ClientConnInterface)
}

func (o Options) withDefaults() Options {
	o.Ready = cmp.Or(o.Ready, 10*time.Second)
	o.Alive = cmp.Or(o.Alive, 30*time.Second)
	o.Grace = cmp.Or(o.Grace, 3*time.Second)
	o.Wait = cmp.Or(o.Wait, 5*time.Second)
	o.LogLines = cmp.Or(o.LogLines, 200)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	return o
}

// Supervisor keeps one plugin running.
type Supervisor struct {
	Options
	dir    *pluginfile.Folder // holds the socket
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	// release removes the folder and closes Program.
	release func() error

	mu      sync.Mutex
	current *child        // nil while no process runs
	why     error         // why none runs
	changed chan struct{} // closed when current or why change
}

// Start starts the plugin and waits for its first reply. If that fails it does not try
// again.
func Start(ctx context.Context, o Options) (*Supervisor, wire.About, error) {
	o = o.withDefaults()
	dir, err := privateFolder(o.Getenv("TMPDIR"))
	if err != nil {
		return nil, wire.About{}, errors.Join(err, o.Program.Close())
	}
	s := &Supervisor{Options: o, dir: dir, done: make(chan struct{}), changed: make(chan struct{})}
	s.release = sync.OnceValue(func() error { return errors.Join(dir.Remove(), o.Program.Close()) })
	c, about, err := s.launch(ctx)
	if err != nil {
		return nil, about, errors.Join(err, s.release())
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.set(c, nil)
	go s.run(c)
	return s, about, nil
}

// maxSocketPath is the size of sun_path without its NUL; see unix(7).
const maxSocketPath = 107

func privateFolder(temp string) (*pluginfile.Folder, error) {
	dir, err := pluginfile.NewFolder(temp)
	if err != nil {
		return nil, err
	}
	if length := len(filepath.Join(dir.Path, socketName)); length > maxSocketPath {
		return nil, errors.Join(dir.Remove(), fmt.Errorf("%w: the socket of the plugin would be %d characters long, more than the %d of a unix socket: set TMPDIR to a shorter folder", provider.ErrInvalidArgument, length, maxSocketPath))
	}
	return dir, nil
}

const socketName = "plugin.sock"

func (s *Supervisor) socket() string { return filepath.Join(s.dir.Path, socketName) }

// Close ends the plugin and everything that it started, and removes its files.
func (s *Supervisor) Close() error {
	s.cancel()
	<-s.done
	return s.release()
}

// run restarts the plugin whenever it ends, until Close.
func (s *Supervisor) run(c *child) {
	defer close(s.done)
	var delay backoff
	for {
		why := s.watch(c)
		if s.ctx.Err() != nil {
			return
		}
		s.set(nil, why)
		if c = s.restart(&delay, time.Since(c.started), why); c == nil {
			return
		}
		s.Log.Info("provider plugin runs again", "plugin", s.Name, "pid", c.pid())
		s.set(c, nil)
	}
}

// restart starts the plugin until that succeeds. It returns nil after Close.
func (s *Supervisor) restart(delay *backoff, ran time.Duration, why error) *child {
	for {
		wait := delay.next(ran)
		s.Log.Warn("provider plugin ended; starting it again", "plugin", s.Name, "error", why, "after", wait)
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return nil
		}
		c, _, err := s.launch(s.ctx)
		if err == nil {
			if s.Restore != nil {
				s.Restore(s.ctx, c.conn)
			}
			return c
		}
		if s.ctx.Err() != nil {
			return nil
		}
		ran, why = 0, err
		s.set(nil, why)
	}
}

// watch kills the process if it hangs. It returns when the process is gone, and why.
func (s *Supervisor) watch(c *child) error {
	tick := time.NewTicker(s.Alive)
	defer tick.Stop()
	for {
		select {
		case <-c.exited:
		case <-s.ctx.Done():
		case <-tick.C:
			if s.alive(c) || s.ctx.Err() != nil {
				continue
			}
			c.hung(s.Ready)
			c.signal(unix.SIGKILL)
		}
		c.stop(s.Grace)
		return c.why()
	}
}

// alive reports whether the process replies in time. A process that has ended counts
// as alive: watch notices its end, with the reason.
func (s *Supervisor) alive(c *child) bool {
	ctx, cancel := context.WithTimeout(s.ctx, s.Ready)
	defer cancel()
	_, err := wire.Info(ctx, c.conn)
	return err == nil || ctx.Err() == nil
}

func (s *Supervisor) set(c *child, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.why = c, why
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Supervisor) state() (c *child, changed <-chan struct{}, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.changed, s.why
}

// Pid returns the current process id, 0 if no process runs.
func (s *Supervisor) Pid() int {
	if c, _, _ := s.state(); c != nil {
		return c.pid()
	}
	return 0
}

// Conn returns the connection to the plugin. During a restart it waits. The returned
// function explains the errors of calls over the connection.
func (s *Supervisor) Conn(ctx context.Context) (grpc.ClientConnInterface, func(error) error, error) {
	timeout := time.NewTimer(s.Wait)
	defer timeout.Stop()
	for {
		c, changed, why := s.state()
		if c != nil && !c.gone() {
			return c.conn, func(err error) error { return s.explain(c, err) }, nil
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return nil, nil, fmt.Errorf("%w: provider plugin %s (%s) was stopped", provider.ErrUnavailable, s.Name, s.Path)
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w: %w", s.down(why), ctx.Err())
		case <-timeout.C:
			return nil, nil, s.down(why)
		}
	}
}

func (s *Supervisor) down(why error) error {
	return fmt.Errorf("%w: provider plugin %s (%s) is being restarted: %w", provider.ErrUnavailable, s.Name, s.Path, cmp.Or(why, errEnded))
}

var errEnded = errors.New("it ended")

// explain replaces a transport error by one that says that the process ended.
func (s *Supervisor) explain(c *child, err error) error {
	if !c.lost(err) {
		return err
	}
	select {
	case <-c.exited:
	case <-time.After(exitNotice):
		return err
	}
	return fmt.Errorf("%w: provider plugin %s (%s) ended during the call, which may have been carried out: %w", provider.ErrUnavailable, s.Name, s.Path, c.why())
}

// exitNotice is how long it may take from the closing of a process's sockets to the
// notice of its end.
const exitNotice = time.Second
