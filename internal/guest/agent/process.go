// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
)

// process is a container's first process or an exec: its streams and its end.
type process struct {
	stdin          *sink
	stdout, stderr *source
	tty            *os.File // nil without a terminal

	child *child
	// exited is closed after child.done, when all that has to be known
	// before the exit status is.
	exited chan struct{}
	asked  atomic.Bool // the exit status was returned to a caller
}

// launcher starts a process whose streams are stdio, or the terminal that it
// sends to the console socket, if that is not empty.
type launcher func(ctx context.Context, stdio files, consoleSocket string) (*child, error)

func (a *Agent) newProcess(ctx context.Context, tty bool, size winsize, launch launcher) (*process, error) {
	if tty {
		return a.newTerminal(ctx, size, launch)
	}
	return newPiped(ctx, launch)
}

// winsize is a terminal's size in characters; zero is unknown.
type winsize struct{ rows, columns uint32 }

func (a *Agent) newTerminal(ctx context.Context, size winsize, launch launcher) (*process, error) {
	console, err := a.newConsole()
	if err != nil {
		return nil, err
	}
	defer console.close()
	child, err := launch(ctx, files{}, console.path)
	if err != nil {
		return nil, err
	}
	tty, err := console.receive()
	if err != nil {
		return nil, errors.Join(err, a.reaper.kill(child, runtimeGrace))
	}
	if size.rows > 0 && size.columns > 0 {
		resize(tty, size.rows, size.columns)
	}
	return &process{
		stdin: newSink(tty, true), stdout: newSource(tty), stderr: newSource(nil),
		tty: tty, child: child, exited: make(chan struct{}),
	}, nil
}

func newPiped(ctx context.Context, launch launcher) (p *process, err error) {
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
	child, err := launch(ctx, files{stdin: there[0], stdout: there[1], stderr: there[2]}, "")
	if err != nil {
		return nil, err
	}
	return &process{
		stdin: newSink(here[0], false), stdout: newSource(here[1]), stderr: newSource(here[2]),
		child: child, exited: make(chan struct{}),
	}, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// wait returns the exit status, to any number of callers.
func (p *process) wait(ctx context.Context) (int, error) {
	select {
	case <-p.exited:
	default:
		select {
		case <-p.exited:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	p.asked.Store(true)
	return p.child.code, nil
}

// close ends the streams, read or not.
func (p *process) close() {
	p.stdin.close()
	p.stdout.close()
	p.stderr.close()
}

// finished reports whether nothing but the status is needed any more.
func (p *process) finished() bool {
	return p.asked.Load() && p.child.ended() && p.stdout.exhausted() && p.stderr.exhausted()
}
