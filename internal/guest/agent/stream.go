// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxRead bounds one response, whatever the caller asks for; a ttrpc frame
// holds 4 MiB.
const maxRead = 1 << 20

// pipeSize is what the kernel buffers of a stream, in bytes: enough for a
// process and its reader not to wait for each other all the time. Memory is
// taken only for what is in it.
const pipeSize = 256 << 10

// source is the agent's end of a process's output: a pipe or a terminal. The
// kernel's buffer is the only one, so a process that nobody reads from is
// slowed down, and what it wrote is kept after its end.
type source struct {
	turn turn
	mu   sync.Mutex
	file *os.File // nil for a stream that never was, or is over
	// back is what a reader took but could not deliver.
	back []byte
}

// turn is a lock that callers can stop waiting for when their context ends.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }

func newSource(file *os.File) *source { return &source{turn: newTurn(), file: file} }

// read blocks until there are 1 to limit bytes; io.EOF at the end. Nothing is
// lost when ctx ends: the next read returns it.
func (s *source) read(ctx context.Context, limit int) ([]byte, error) {
	if err := s.turn.take(ctx); err != nil {
		return nil, err
	}
	defer s.turn.give()
	limit = max(1, min(limit, maxRead))
	s.mu.Lock()
	data, file := s.back, s.file
	s.mu.Unlock()
	if len(data) == 0 {
		var err error
		if data, err = s.readFile(ctx, file, limit); err != nil {
			return nil, err
		}
	}
	err := ctx.Err()
	if err != nil {
		limit = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	limit = min(limit, len(data))
	s.back = data[limit:]
	return data[:limit], err
}

func (s *source) readFile(ctx context.Context, file *os.File, limit int) ([]byte, error) {
	if file == nil {
		return nil, io.EOF
	}
	release := interrupt(ctx, file.SetReadDeadline)
	buf := make([]byte, limit)
	n, err := file.Read(buf)
	release()
	switch {
	case n > 0:
		return buf[:n], nil
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return nil, ctx.Err()
	}
	// A pipe ends with EOF, a terminal whose last user is gone with EIO.
	s.close()
	return nil, io.EOF
}

// close ends the stream; a waiting reader gets io.EOF.
func (s *source) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
	}
	s.file = nil
}

// closed reports whether its end was reached.
func (s *source) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file == nil
}

// exhausted reports whether all has been read.
func (s *source) exhausted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file == nil && len(s.back) == 0
}

// interrupt makes a blocked call return when ctx is over. The returned function
// ends that, and clears the deadline for the next call.
func interrupt(ctx context.Context, setDeadline func(time.Time) error) (release func()) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		setDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-fired
			setDeadline(time.Time{})
		}
	}
}

// sink is the agent's end of a process's input.
type sink struct {
	turn turn
	mu   sync.Mutex
	file *os.File // nil when closed
	tty  bool
}

func newSink(file *os.File, tty bool) *sink { return &sink{turn: newTurn(), file: file, tty: tty} }

// write blocks until the process has taken all of data, or ctx is done; it
// returns how much was taken.
func (s *sink) write(ctx context.Context, data []byte) (int, error) {
	if err := s.turn.take(ctx); err != nil {
		return 0, err
	}
	defer s.turn.give()
	s.mu.Lock()
	file := s.file
	s.mu.Unlock()
	if file == nil {
		return 0, os.ErrClosed
	}
	release := interrupt(ctx, file.SetWriteDeadline)
	defer release()
	n, err := file.Write(data)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		err = ctx.Err()
	}
	return n, err
}

// finish closes the input after the writes that are under way. A terminal
// stays open: it is the output as well, and its users end input with ^D.
func (s *sink) finish(ctx context.Context) error {
	if s.tty {
		return nil
	}
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	s.close()
	return nil
}

// close ends the input at once, also a write that waits.
func (s *sink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil && !s.tty {
		s.file.Close()
	}
	s.file = nil
}

// pipe returns a pipe whose end here can be waited on and whose other end is
// an ordinary blocking one for a process.
func pipe(reading bool) (here, there *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	mine, theirs := fds[0], fds[1]
	if !reading {
		mine, theirs = theirs, mine
	}
	// Best effort: the kernel may allow less.
	unix.FcntlInt(uintptr(mine), unix.F_SETPIPE_SZ, pipeSize)
	if err := unix.SetNonblock(mine, true); err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(mine), "pipe"), os.NewFile(uintptr(theirs), "pipe"), nil
}
