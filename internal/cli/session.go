// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// session watches a process in a pod, or a pod, until it ends: signals go to it, its
// terminal follows the user's.
type session struct {
	process *podclient.Process
	// ended returns the exit code.
	ended  func(context.Context) (int, error)
	signal func(context.Context, syscall.Signal) error
	// stop is called with each signal that is to end it. It returns how long the process may take to end after SIGTERM
	// or SIGHUP, and whether the signal is that of `outrigger stop`.
	stop     func() (grace time.Duration, asked bool)
	term     *terminal // nil without -t
	signals  <-chan os.Signal
	early    os.Signal // came before; may be nil
	progress progress
	// pod says that containers of a manifest end as with the kubelet, whatever the signal.
	pod bool

	interrupts int
	ending     bool // a signal was to end it
}

// errAbandoned is a third interrupt: the user does not want to wait for order.
var errAbandoned = errors.New("interrupted three times; what is left is removed by `outrigger rm --all` or the next run")

type outcome struct {
	code int
	err  error
}

// run gives the process the user's streams and terminal until it ends, and returns its exit code.
func (s *session) run(ctx context.Context, streams podclient.IO) (int, error) {
	if s.term != nil {
		if err := s.term.raw(); err != nil {
			return 0, fmt.Errorf("terminal: %w", err)
		}
		defer s.term.restore()
		s.term.fit(ctx, s.process)
	}
	s.process.Stream(streams)
	return s.wait(ctx)
}

// wait returns the process's exit code.
func (s *session) wait(ctx context.Context) (int, error) {
	done := make(chan outcome, 1)
	go func() {
		code, err := s.ended(ctx)
		done <- outcome{code, err}
	}()
	kill := time.NewTimer(0)
	kill.Stop()
	var deadline time.Time
	take := func(sig os.Signal) {
		if grace, limited := s.handle(ctx, sig); limited && (deadline.IsZero() || time.Now().Add(grace).Before(deadline)) {
			deadline = time.Now().Add(grace)
			kill.Reset(grace)
		}
	}
	if s.early != nil {
		take(s.early)
	}
	for {
		select {
		case out := <-done:
			return out.code, out.err
		case sig := <-s.signals:
			take(sig)
			if s.interrupts >= 3 {
				return 0, errAbandoned
			}
		case <-kill.C:
			s.send(ctx, unix.SIGKILL)
		}
	}
}

// await returns the exit code of a process. One whose output nobody takes is killed.
func await(ctx context.Context, p *podclient.Process, signal func(context.Context, syscall.Signal) error) (int, error) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-p.OutputFailed():
			signal(ctx, unix.SIGKILL)
		case <-ended:
		}
	}()
	code, err := p.Wait(ctx)
	close(ended)
	switch broken := p.OutputErr(); {
	case err != nil || broken == nil:
		return code, err
	case errors.Is(broken, syscall.EPIPE):
		return 128 + int(unix.SIGPIPE), nil
	default:
		return 0, broken
	}
}

// handle reports whether the process must end within a grace period.
func (s *session) handle(ctx context.Context, sig os.Signal) (grace time.Duration, limited bool) {
	again := s.ending
	if ends(sig) {
		var asked bool
		grace, asked = s.stop()
		s.ending, again = true, again && !asked
	}
	switch {
	case sig == unix.SIGWINCH:
		if s.term != nil {
			s.term.fit(ctx, s.process)
		}
		return 0, false
	case s.pod && !ends(sig):
		return 0, false
	case s.pod && again:
		sig = unix.SIGKILL
	case s.pod:
		sig = unix.SIGTERM
	case sig == unix.SIGINT:
		s.interrupts++
		if s.interrupts > 1 {
			s.send(ctx, unix.SIGKILL)
			return 0, false
		}
		s.progress.say("SIGINT was sent to the container; press ctrl-C again to kill it")
	}
	s.send(ctx, sig.(syscall.Signal))
	return grace, sig == unix.SIGTERM || sig == unix.SIGHUP
}

// send does not wait: a guest that hangs must not keep us from the next signal.
func (s *session) send(ctx context.Context, sig syscall.Signal) {
	go s.signal(ctx, sig) // a process that has ended takes no signal; Wait tells
}

// commandError gives a command that cannot be run the exit code of a shell.
func commandError(err error) error {
	text := strings.ToLower(err.Error()) // runc writes "exec format error", crun "Exec format error"
	switch {
	case strings.Contains(text, "executable file not found"),
		strings.Contains(text, "exec") && strings.Contains(text, "no such file or directory"):
		return exitError{exitNotFound, err}
	case strings.Contains(text, "exec") && (strings.Contains(text, "permission denied") || strings.Contains(text, "is a directory") || strings.Contains(text, "exec format error")):
		return exitError{exitNotExecutable, err}
	}
	return err
}
