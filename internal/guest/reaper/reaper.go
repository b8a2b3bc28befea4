// SPDX-License-Identifier: Apache-2.0

// Package reaper waits for the children of a process that gets those of others too:
// PID 1, or a child subreaper.
package reaper

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

const (
	// grace is how long a killed process may take to be gone.
	grace = 10 * time.Second
	// lostStatus is that of a process whose end could not be observed: exit code 255.
	lostStatus unix.WaitStatus = 255 << 8
)

// Reaper alone waits for children in this process: for those it starts, and for every
// process that others leave behind. No exit status is lost, however early a process ends.
type Reaper struct {
	mu      sync.Mutex
	waiting map[int]*Child
	// launches counts calls of Launch that are under way; while there are any, statuses
	// of unknown processes are kept in early.
	launches int
	early    map[int]unix.WaitStatus
}

// Child is a process that somebody waits for.
type Child struct {
	PID    int
	Done   chan struct{} // closed when Status is set
	Status unix.WaitStatus
}

// New returns the reaper of this process, which can have one.
func New() *Reaper {
	return &Reaper{waiting: make(map[int]*Child), early: make(map[int]unix.WaitStatus)}
}

// Run reaps until ctx is over.
func (r *Reaper) Run(ctx context.Context) {
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

func (r *Reaper) reap() {
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
		r.deliver(pid, status)
	}
}

func (r *Reaper) deliver(pid int, status unix.WaitStatus) {
	if c, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		c.Status = status
		close(c.Done)
	} else if r.launches > 0 {
		r.early[pid] = status
	}
}

// Start starts cmd; cmd.Wait must not be called. Its standard streams have to
// be files, or nil.
func (r *Reaper) Start(cmd *exec.Cmd) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := r.expect(cmd.Process.Pid)
	return c, cmd.Process.Release()
}

func (r *Reaper) expect(pid int) *Child {
	c := &Child{PID: pid, Done: make(chan struct{})}
	r.waiting[pid] = c
	return c
}

// Launch runs fn, which starts a process that becomes this process's child
// later and returns its pid, and returns that process.
func (r *Reaper) Launch(fn func() (pid int, err error)) (*Child, error) {
	r.mu.Lock()
	r.launches++
	r.mu.Unlock()
	pid, err := fn()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.launches--
	var c *Child
	if err == nil {
		c = r.expect(pid)
		if status, gone := r.early[pid]; gone {
			r.deliver(pid, status)
		}
	}
	delete(r.early, pid)
	if r.launches == 0 {
		clear(r.early)
	}
	return c, err
}

// Adopt watches a process that is nobody's child here. Its status will be unknown.
func Adopt(pid int) (*Child, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	c := &Child{PID: pid, Done: make(chan struct{}), Status: lostStatus}
	go func() {
		defer close(c.Done)
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

// Lost returns a process that has ended unobserved.
func Lost(pid int) *Child {
	c := &Child{PID: pid, Done: make(chan struct{}), Status: lostStatus}
	close(c.Done)
	return c
}

// Signal sends sig unless the process has ended. The lock keeps its pid from
// being reaped, and so from being another's.
func (r *Reaper) Signal(c *Child, sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Ended() {
		return nil
	}
	if err := unix.Kill(c.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// Kill ends a process and waits for it, at most for grace.
func (r *Reaper) Kill(c *Child) error {
	if err := r.Signal(c, unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-c.Done:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("process %d is still there %v after SIGKILL", c.PID, grace)
	}
}

// Ended reports whether the process has ended.
func (c *Child) Ended() bool {
	select {
	case <-c.Done:
		return true
	default:
		return false
	}
}

// Code returns the exit code of a process that has ended, or 128 + the number of the
// signal that ended it.
func (c *Child) Code() int {
	if c.Status.Signaled() {
		return 128 + int(c.Status.Signal())
	}
	return c.Status.ExitStatus()
}
