// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
)

// child is one process of the plugin.
type child struct {
	cmd     *exec.Cmd
	started time.Time
	stdin   *os.File // closing it tells the plugin to end
	conn    *grpc.ClientConn
	lines   *lines
	exited  chan struct{}

	mu     sync.Mutex
	reaped bool
	cause  error // why it was killed
}

// spawn starts the program; it has not said anything yet.
func (s *Supervisor) spawn() (*child, error) {
	if err := os.Remove(s.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	c := &child{lines: newLines(s.Log.With("plugin", s.Name), s.LogLines), exited: make(chan struct{}), started: time.Now()}
	c.cmd = s.command()
	theirs, output, err := c.pipes()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go c.live(started, output)
	err = <-started
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: provider plugin %s cannot be started: %w (is it for this machine's architecture, and its interpreter or loader there?)", provider.ErrInvalidArgument, s.Path, err)
	}
	return c, nil
}

// command runs the sealed copy, which the new process has as its file 3: the
// interpreter of a script opens it there too. The number that it has in this
// process may be taken for something else between fork and exec.
func (s *Supervisor) command() *exec.Cmd {
	return &exec.Cmd{
		Path:       "/proc/self/fd/3",
		Args:       []string{s.Path},
		Env:        s.environment(),
		Dir:        "/",
		ExtraFiles: []*os.File{s.Program},
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL,
		},
	}
}

// inherited are the variables of the host that a plugin sees besides its
// settings: where things are on this machine, and the way out of it.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// environment returns all variables that the plugin gets from us.
func (s *Supervisor) environment() []string {
	env := []string{SocketVariable + "=" + s.socket()}
	for _, name := range inherited {
		if value := s.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// pipes connects the standard files and returns the child's ends and what to
// read of ours.
func (c *child) pipes() (theirs, output []*os.File, err error) {
	var ours []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(ours, theirs...))
			return nil, nil, err
		}
		if i == 0 {
			r, w = w, r // the child reads this one
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	c.stdin = ours[0]
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, ours[1:], nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// live runs the process until its end. Its thread must outlive the process: the kernel
// sends the death signal when the thread that forked ends.
func (c *child) live(started chan<- error, output []*os.File) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		closeAll(append(output, c.stdin))
		return
	}
	var readers sync.WaitGroup
	for _, f := range output {
		readers.Go(func() { c.lines.read(f) })
	}
	waitExit(c.pid())
	c.reap()
	for _, f := range output { // who left the group may still hold the other end
		f.SetReadDeadline(time.Now().Add(exitNotice))
	}
	readers.Wait()
	c.lines.flush()
	closeAll(append(output, c.stdin))
	close(c.exited)
}

// waitExit waits for the end of a process but leaves it a zombie, so that its
// number, and its group's, cannot be anybody else's yet.
func waitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// reap kills what is left of the group and then gives the number back.
func (c *child) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	unix.Kill(-c.pid(), unix.SIGKILL)
	c.cmd.Wait()
	c.reaped = true
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) gone() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// stop ends the process within the time given, by force after that.
func (c *child) stop(grace time.Duration) {
	if c.conn != nil {
		defer c.conn.Close()
	}
	if grace > 0 {
		c.signal(unix.SIGTERM)
		select {
		case <-c.exited:
			return
		case <-time.After(grace):
		}
	}
	c.signal(unix.SIGKILL)
	<-c.exited
}

// signal reaches the whole group.
func (c *child) signal(sig unix.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		unix.Kill(-c.pid(), sig)
	}
}

// hung notes that the process was killed because it does not answer.
func (c *child) hung(after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = fmt.Errorf("it did not answer within %s and was killed", after)
}

// why returns how the process ended, once it has.
func (c *child) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return fmt.Errorf("it ended with %s%s", c.cmd.ProcessState, c.lines.quote())
}
