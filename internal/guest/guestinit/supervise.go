// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/guest/hold"
)

// childEnv is the environment of every program. GODEBUG may come from the
// kernel's command line.
var childEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root",
	"TERM=linux",
	"GODEBUG=" + os.Getenv("GODEBUG"),
}

// Restart delays of a supervised program; the delay doubles while it keeps
// ending within a minute.
const (
	minBackoff  = 100 * time.Millisecond
	maxBackoff  = 5 * time.Second
	stableAfter = time.Minute
)

// reaper collects every dead child of PID 1, ours and adopted ones. It passes the
// status of ours to their waiters. Nothing else calls wait4, so no status is lost.
type reaper struct {
	mu      sync.Mutex
	waiters map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	return &reaper{waiters: map[int]chan syscall.WaitStatus{}}
}

// run collects children until the process ends.
func (r *reaper) run() {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGCHLD)
	for range sig {
		r.collect()
	}
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if c := r.waiters[pid]; c != nil {
			delete(r.waiters, pid)
			c <- ws
		}
	}
}

// start starts a program and registers its waiter before it can be reaped. With held
// the program waits until it is released (package hold).
func (r *reaper) start(argv []string, stderr, held *os.File) (pid int, done <-chan syscall.WaitStatus, err error) {
	env, files := childEnv, []uintptr{0, stderr.Fd(), stderr.Fd()}
	if held != nil {
		env, files = append(slices.Clone(env), hold.Env()), append(files, held.Fd())
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	files[0] = null.Fd()
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err = syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	c := make(chan syscall.WaitStatus, 1)
	r.waiters[pid] = c
	return pid, c, nil
}

// process is a started program.
type process struct {
	pid  int
	done <-chan syscall.WaitStatus
	// letGo releases a held program. Further calls do nothing.
	letGo func()
}

// ended reports whether a program has ended. It consumes the status.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// spawn starts a program whose output goes to the console with its name.
func (r *reaper) spawn(con *console, argv []string) (*process, error) {
	return r.spawnHeld(con, argv, nil)
}

// hold starts a program and returns when the program waits for its release.
func (r *reaper) hold(con *console, argv []string) (*process, error) {
	held, err := hold.New()
	if err != nil {
		return nil, err
	}
	p, err := r.spawnHeld(con, argv, held.Child)
	held.Child.Close()
	if err == nil {
		p.letGo = held.LetGo
		err = held.Await()
	}
	if err != nil {
		held.LetGo()
		return nil, err
	}
	return p, nil
}

func (r *reaper) spawnHeld(con *console, argv []string, held *os.File) (*process, error) {
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer pw.Close()
	p := &process{letGo: func() {}}
	if p.pid, p.done, err = r.start(argv, pw, held); err != nil {
		pr.Close()
		return nil, err
	}
	go func() {
		defer pr.Close()
		con.copyLines(filepath.Base(argv[0]), pr)
	}()
	return p, nil
}

// startShell runs a shell that owns the console.
func (r *reaper) startShell() (<-chan syscall.WaitStatus, error) {
	tty, err := os.OpenFile("/dev/console", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer tty.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(debugShell, []string{"-sh"}, &syscall.ProcAttr{
		Dir:   "/root",
		Env:   childEnv,
		Files: []uintptr{tty.Fd(), tty.Fd(), tty.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: true},
	})
	if err != nil {
		return nil, err
	}
	c := make(chan syscall.WaitStatus, 1)
	r.waiters[pid] = c
	return c, nil
}

// service is a program that must always run.
type service struct {
	argv []string
	// oomScore is written to oom_score_adj, see proc(5).
	oomScore string
}

// supervise keeps a service running. It first uses the held program, if any.
func (r *reaper) supervise(con *console, s service, held *process) {
	backoff := minBackoff
	for {
		begin := time.Now()
		p, err := held, error(nil)
		if held == nil {
			p, err = r.spawn(con, s.argv)
		}
		held = nil
		if err == nil {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.pid), []byte(s.oomScore), 0)
			p.letGo()
			con.logf("started %s, pid %d", s.argv[0], p.pid)
			err = exitError(<-p.done)
		}
		if time.Since(begin) > stableAfter {
			backoff = minBackoff
		}
		con.logf("%s ended: %v; starting it again in %v", s.argv[0], err, backoff)
		time.Sleep(backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

func exitError(ws syscall.WaitStatus) error {
	switch {
	case ws.Signaled():
		return fmt.Errorf("killed by %s", unix.SignalName(ws.Signal()))
	case ws.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", ws.ExitStatus())
	}
	return errors.New("exit code 0")
}
