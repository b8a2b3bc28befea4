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

// session watches one process in a pod until it ends: signals go to it, its
// terminal follows the user's.
type session struct {
	process *podclient.Process
	signal  func(context.Context, syscall.Signal) error
	term    *terminal // nil without -t
	signals <-chan os.Signal
	// grace is how long the process may take to end after SIGTERM or SIGHUP.
	grace    time.Duration
	progress progress

	interrupts int
	asked      bool // a signal was to end it
	pipeBroke  bool
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
		code, err := s.process.Wait(ctx)
		done <- outcome{code, err}
	}()
	var kill <-chan time.Time
	outputFailed := s.process.OutputFailed()
	for {
		select {
		case out := <-done:
			return s.result(out)
		case sig := <-s.signals:
			if s.interrupts >= 3 {
				return 0, errAbandoned
			}
			if s.handle(ctx, sig) && kill == nil {
				kill = time.After(s.grace)
			}
			if s.interrupts >= 3 {
				return 0, errAbandoned
			}
		case <-kill:
			s.send(ctx, unix.SIGKILL)
		case <-outputFailed:
			outputFailed = nil
			s.pipeBroke = true
			s.send(ctx, unix.SIGKILL)
		}
	}
}

func (s *session) result(out outcome) (int, error) {
	if out.err == nil && s.pipeBroke {
		if errors.Is(s.process.OutputErr(), syscall.EPIPE) {
			return 128 + int(unix.SIGPIPE), nil
		}
		return 0, s.process.OutputErr()
	}
	return out.code, out.err
}

// handle reports whether the process must end within the grace period.
func (s *session) handle(ctx context.Context, sig os.Signal) (deadline bool) {
	s.asked = s.asked || ends(sig)
	switch sig {
	case unix.SIGWINCH:
		if s.term != nil {
			s.term.fit(ctx, s.process)
		}
		return false
	case unix.SIGINT:
		s.interrupts++
		if s.interrupts > 1 {
			s.send(ctx, unix.SIGKILL)
			return false
		}
		s.progress.say("SIGINT was sent to the container; press ctrl-C again to kill it")
	}
	s.send(ctx, sig.(syscall.Signal))
	return sig == unix.SIGTERM || sig == unix.SIGHUP
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
