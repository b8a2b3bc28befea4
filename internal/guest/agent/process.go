// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/guest/reaper"
	"golang.org/x/sys/unix"
)

// process is a container's first process or an exec: its streams and its end.
type process struct {
	stdin          *sink
	stdout, stderr *source
	tty            *os.File // nil without a terminal

	child *reaper.Child
	// exited is closed after child.Done, when all that has to be known
	// before the exit status is.
	exited chan struct{}
	asked  atomic.Bool // the exit status was returned to a caller
}

// newProcess returns the process of a child whose streams end here in these files; nil is none.
func newProcess(child *reaper.Child, stdin, stdout, stderr *os.File) *process {
	return &process{
		stdin: newSink(stdin, false), stdout: newSource(stdout), stderr: newSource(stderr),
		child: child, exited: make(chan struct{}),
	}
}

// launch has the runtime start what spec describes, by its command create or exec.
func (a *Agent) launch(ctx context.Context, spec *oci.Process, command ...string) (p *process, err error) {
	if spec.Terminal {
		p, err = a.launchTerminal(ctx, spec.ConsoleSize, command)
	} else {
		p, err = a.launchPiped(ctx, command)
	}
	return p, notRun(spec.Args, err)
}

func (a *Agent) launchTerminal(ctx context.Context, size *oci.Box, command []string) (*process, error) {
	console, err := a.listenConsole()
	if err != nil {
		return nil, err
	}
	defer console.Close()
	child, err := a.runtime.launch(ctx, files{}, console.Addr().String(), command...)
	if err != nil {
		return nil, err
	}
	tty, err := receiveTerminal(console)
	if err != nil {
		return nil, errors.Join(err, a.reaper.Kill(child))
	}
	if size != nil && size.Height > 0 && size.Width > 0 {
		resize(tty, uint32(size.Height), uint32(size.Width))
	}
	p := newProcess(child, tty, tty, nil)
	p.tty, p.stdin.tty = tty, true
	return p, nil
}

func (a *Agent) launchPiped(ctx context.Context, command []string) (p *process, err error) {
	var here, there [3]*os.File
	defer func() {
		closeAll(there[:]...)
		if err != nil {
			closeAll(here[:]...)
		}
	}()
	for i := range here {
		if here[i], there[i], err = pipe(i > 0); err != nil {
			return nil, err
		}
	}
	child, err := a.runtime.launch(ctx, files{stdin: there[0], stdout: there[1], stderr: there[2]}, "", command...)
	if err != nil {
		return nil, err
	}
	return newProcess(child, here[0], here[1], here[2]), nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// await returns when done is closed, or with ctx's error.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the streams, read or not.
func (p *process) close() {
	p.stdin.close()
	p.stdout.close()
	p.stderr.close()
}

// finished reports whether nothing but the status is needed any more.
func (p *process) finished() bool {
	return p.asked.Load() && p.child.Ended() && p.stdout.exhausted() && p.stderr.exhausted()
}

// consoleWait bounds the wait for a connection that the runtime has made already.
const consoleWait = 10 * time.Second

// listenConsole returns the socket on which the runtime sends the terminal that it makes
// for a process.
func (a *Agent) listenConsole() (*net.UnixListener, error) {
	path := filepath.Join(a.cfg.StateDir, "tty"+strconv.FormatUint(a.serial.Add(1), 10))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("console socket: %w", err)
	}
	return listener, nil
}

// receiveTerminal returns the terminal. Call it when the runtime has succeeded: by then it
// has connected and sent.
func receiveTerminal(listener *net.UnixListener) (*os.File, error) {
	listener.SetDeadline(time.Now().Add(consoleWait))
	conn, err := listener.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("console of the OCI runtime: %w", err)
	}
	defer conn.Close()
	data, control := make([]byte, unix.PathMax), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(data, control)
	if err != nil {
		return nil, fmt.Errorf("console of the OCI runtime: %w", err)
	}
	var fds []int
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err == nil && len(messages) == 1 {
		fds, err = unix.ParseUnixRights(&messages[0])
	}
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("console of the OCI runtime: no descriptor: %v", err)
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "tty"), nil
}

// resize sets a terminal's size in characters.
func resize(tty *os.File, rows, columns uint32) error {
	conn, err := tty.SyscallConn()
	if err != nil {
		return err
	}
	size := unix.Winsize{Row: uint16(rows), Col: uint16(columns)}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	if err != nil {
		return err
	}
	return os.NewSyscallError("TIOCSWINSZ", failed)
}
