// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

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
