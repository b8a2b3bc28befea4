// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

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

// terminal is the user's terminal while a process in a pod has it.
type terminal struct {
	in       *os.File
	out      *os.File
	old      *term.State
	restored sync.Once
}

// errNoTTY is docker's condition for -it in a pipe.
var errNoTTY = errors.New("-t with -i needs a terminal on stdin; leave out -t when stdin is a pipe or file")

// openTerminal finds the terminal for -t; stdin need not be one without -i.
func (a *App) openTerminal(interactive bool) (*terminal, error) {
	t := &terminal{in: asTerminal(a.Stdin), out: asTerminal(a.Stdout)}
	if interactive && t.in == nil {
		return nil, errNoTTY
	}
	return t, nil
}

// raw gives every key to the pod. Without a terminal it does nothing.
func (t *terminal) raw() error {
	if t.in == nil {
		return nil
	}
	old, err := term.MakeRaw(int(t.in.Fd()))
	t.old = old
	return err
}

// restore may be called any number of times, from anywhere.
func (t *terminal) restore() {
	t.restored.Do(func() {
		if t.old != nil {
			term.Restore(int(t.in.Fd()), t.old)
		}
	})
}

// size returns 0, 0 without a terminal.
func (t *terminal) size() (rows, columns uint32) {
	for _, f := range []*os.File{t.out, t.in} {
		if f == nil {
			continue
		}
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			return uint32(h), uint32(w)
		}
	}
	return 0, 0
}

// fit gives the process the terminal's size.
func (t *terminal) fit(ctx context.Context, p *podclient.Process) {
	if rows, columns := t.size(); rows > 0 && columns > 0 {
		p.Resize(ctx, rows, columns) // a process that ended has no size
	}
}

// asTerminal returns nil for a stream that is not a terminal.
func asTerminal(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// catchSignals delivers those that concern the process in the pod, from now on. SIGPIPE is caught and dropped, so
// that writes to a closed pipe fail instead of killing this process before it
// has removed the pod.
func catchSignals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c, unix.SIGWINCH, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, unix.SIGPIPE)
	return c, func() { signal.Stop(c); signal.Stop(pipe) }
}

// ends reports whether a signal ends this program if it is not forwarded.
func ends(sig os.Signal) bool {
	return slices.Contains([]os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}, sig)
}

// signalError ends what is under way before the container runs.
type signalError struct{ sig syscall.Signal }

func (e signalError) Error() string { return "interrupted by " + unix.SignalName(e.sig) }
