// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// stdio are the FIFOs of a process, whose other ends containerd or its client
// holds. Both may go away and come back: so the shim keeps a reader of what it
// writes and a writer of what it reads. Streams that are not wanted are nil, which the
// methods of os.File take for closed.
type stdio struct {
	stdin, stdout, stderr *os.File

	mu sync.Mutex
	// hold is the second writer of stdin: without it the process would see
	// the end of its input when containerd restarts.
	hold *os.File
}

// paths of the FIFOs; empty ones are not wanted.
type paths struct {
	stdin, stdout, stderr string
	terminal              bool
}

// open does not wait for the other ends.
func (p paths) open() (_ *stdio, err error) {
	s := &stdio{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.stdout, err = openFIFO(p.stdout, unix.O_RDWR); err != nil {
		return nil, err
	}
	if !p.terminal {
		if s.stderr, err = openFIFO(p.stderr, unix.O_RDWR); err != nil {
			return nil, err
		}
	}
	if s.stdin, err = openFIFO(p.stdin, unix.O_RDONLY); err != nil {
		return nil, err
	}
	s.hold, err = openFIFO(p.stdin, unix.O_WRONLY)
	return s, err
}

// openFIFO returns nil for an empty path. Non-blocking files are polled by the
// Go runtime, so Close ends a read or write that waits.
func openFIFO(path string, flags int) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	if strings.Contains(path, "://") {
		return nil, fmt.Errorf("stdio %s: this shim knows FIFOs only", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("stdio: %w", err)
	}
	if info.Mode()&os.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("stdio: %s is not a FIFO (%v)", path, info.Mode().Type())
	}
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("stdio: %w", err)
	}
	return f, nil
}

// streams leaves out what is not wanted: an interface that holds a nil *os.File
// is not nil.
func (s *stdio) streams() podclient.IO {
	var out podclient.IO
	if s.stdin != nil {
		out.Stdin = s.stdin
	}
	if s.stdout != nil {
		out.Stdout = s.stdout
	}
	if s.stderr != nil {
		out.Stderr = s.stderr
	}
	return out
}

// CloseStdin lets the process see the end of its input as soon as the client
// has closed its end, too; it does not wait for that.
func (s *stdio) CloseStdin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold.Close()
	s.hold = nil
}

// Abandon makes writes that nobody reads fail after a while, since a process
// counts as running until its output is out.
func (s *stdio) Abandon(after time.Duration) {
	deadline := time.Now().Add(after)
	s.stdout.SetWriteDeadline(deadline)
	s.stderr.SetWriteDeadline(deadline)
}

// Finish ends the streams of a process that has ended; readers see the end of
// output. What has not been read yet stays until it was, or until Close, since
// a FIFO that nobody holds forgets its content: containerd may be restarting.
func (s *stdio) Finish() {
	s.stopStdin()
	for _, f := range []*os.File{s.stdout, s.stderr} {
		if unread(f) == 0 {
			f.Close()
		} else {
			go closeWhenRead(f)
		}
	}
}

// Release closes the streams of a process that is deleted. What has not been read
// stays a while: a containerd that has just restarted deletes a process that ended
// meanwhile perhaps before it has opened its own ends of the FIFOs.
func (s *stdio) Release(patience time.Duration) {
	s.stopStdin()
	for _, f := range []*os.File{s.stdout, s.stderr} {
		if unread(f) == 0 {
			f.Close()
		} else {
			time.AfterFunc(patience, func() { f.Close() })
		}
	}
}

// AwaitReader returns when what a process that has ended wrote is read, or after patience.
func (s *stdio) AwaitReader(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for unread(s.stdout)+unread(s.stderr) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stopStdin closes the reader first: its end must not be taken for that of the
// input.
func (s *stdio) stopStdin() {
	s.stdin.Close()
	s.CloseStdin()
}

// closeWhenRead polls, as a pipe has no event for having become empty.
func closeWhenRead(f *os.File) {
	for wait := time.Millisecond; unread(f) > 0; wait = min(2*wait, 250*time.Millisecond) {
		time.Sleep(wait)
	}
	f.Close()
}

// unread returns how many bytes are in the pipe; 0 once f is closed, or if it is nil.
func unread(f *os.File) (n int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	conn.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	})
	return n
}

// Close ends the streams at once; a second time is harmless.
func (s *stdio) Close() {
	s.stopStdin()
	s.stdout.Close()
	s.stderr.Close()
}
