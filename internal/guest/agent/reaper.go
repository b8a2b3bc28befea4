// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reaper alone waits for children in this process: for the runtime itself and,
// since the agent is a child subreaper, for every process that the runtime leaves
// behind. No exit status is lost, however early a process ends.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]*child
	// launches counts runs of the runtime whose offspring nobody knows by pid yet;
	// while there are any, statuses of unknown processes are kept in early.
	launches int
	early    map[int]int
}

// child is a process that somebody waits for.
type child struct {
	pid  int
	done chan struct{} // closed when code is set
	code int           // exit code, or 128 + number of the signal that ended it
}

func newReaper() (*reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a child subreaper: %w", err)
	}
	return &reaper{waiting: make(map[int]*child), early: make(map[int]int)}, nil
}

// run reaps until ctx is over.
func (r *reaper) run(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		r.reap()
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.deliver(pid, exitCode(status))
	}
}

func (r *reaper) deliver(pid, code int) {
	if c, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		c.code = code
		close(c.done)
		return
	}
	if r.launches > 0 {
		r.early[pid] = code
	}
}

func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// start starts cmd; cmd.Wait must not be called. Its standard streams have to
// be files, or nil.
func (r *reaper) start(cmd *exec.Cmd) (*child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := r.expect(cmd.Process.Pid)
	return c, cmd.Process.Release()
}

func (r *reaper) expect(pid int) *child {
	c := &child{pid: pid, done: make(chan struct{})}
	r.waiting[pid] = c
	return c
}

// launch runs fn, which starts a process that becomes this process's child
// later and returns its pid, and returns that process.
func (r *reaper) launch(fn func() (pid int, err error)) (*child, error) {
	r.mu.Lock()
	r.launches++
	r.mu.Unlock()
	pid, err := fn()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.launches--
	var c *child
	if err == nil {
		c = r.expect(pid)
		if code, gone := r.early[pid]; gone {
			r.deliver(pid, code)
		}
	}
	delete(r.early, pid)
	if r.launches == 0 {
		clear(r.early)
	}
	return c, err
}

// signal sends sig unless the process has ended. The lock keeps its pid from
// being reaped, and so from being another's.
func (r *reaper) signal(c *child, sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-c.done:
		return nil
	default:
	}
	if err := unix.Kill(c.pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// wait returns the exit code.
func (c *child) wait(ctx context.Context) (int, error) {
	select {
	case <-c.done:
		return c.code, nil
	default:
	}
	select {
	case <-c.done:
		return c.code, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// adopted watches a process that is nobody's child here: one that an earlier
// agent started. Its status is unknown.
func (r *reaper) adopted(pid, code int) (*child, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	c := &child{pid: pid, done: make(chan struct{}), code: code}
	go func() {
		defer close(c.done)
		defer unix.Close(fd)
		for {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(poll, -1); n > 0 || err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	return c, nil
}

// kill ends a process and waits for it, at most for grace.
func (r *reaper) kill(c *child, grace time.Duration) error {
	if err := r.signal(c, unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("process %d is still there %v after SIGKILL", c.pid, grace)
	}
}
