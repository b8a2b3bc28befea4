// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/guest/hold"
	"github.com/outrigger/outrigger/internal/guest/reaper"
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

// process is a started program.
type process struct {
	*reaper.Child
	// letGo releases a held program. Further calls do nothing.
	letGo func()
}

// spawn starts a program whose output goes to the console with its name. With held the
// program waits until it is released (package hold). Its environment has env beside childEnv.
func (g *guest) spawn(argv []string, held *os.File, env ...string) (*process, error) {
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer pw.Close()
	cmd := &exec.Cmd{
		Path: argv[0], Args: argv, Dir: "/", Env: slices.Concat(childEnv, env), Stdout: pw, Stderr: pw,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if held != nil {
		cmd.Env, cmd.ExtraFiles = append(cmd.Env, hold.Env()), []*os.File{held}
	}
	child, err := g.reaper.Start(cmd)
	if err != nil {
		pr.Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	go func() {
		defer pr.Close()
		g.con.copyLines(filepath.Base(argv[0]), pr)
	}()
	return &process{child, func() {}}, nil
}

// hold starts a program and returns when the program waits for its release, which g.held then has.
func (g *guest) hold(argv []string) error {
	held, err := hold.New()
	if err != nil {
		return err
	}
	p, err := g.spawn(argv, held.Child)
	held.Child.Close()
	if err == nil {
		p.letGo = held.LetGo
		err = held.Await()
	}
	if err != nil {
		held.LetGo()
		return err
	}
	g.held[argv[0]] = p
	return nil
}

// startShell runs a shell that owns the console.
func (g *guest) startShell() (*reaper.Child, error) {
	tty, err := os.OpenFile("/dev/console", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer tty.Close()
	return g.reaper.Start(&exec.Cmd{
		Path: debugShell, Args: []string{"-sh"}, Dir: "/root", Env: childEnv, Stdin: tty, Stdout: tty, Stderr: tty,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	})
}

// supervise keeps a program running, with oomScore as its oom_score_adj (proc(5)). It
// first uses the held process, if any.
func (g *guest) supervise(argv []string, oomScore string, held *process) {
	g.keep(argv[0], oomScore, held, func() (*process, error) { return g.spawn(argv, nil) })
}

func (g *guest) keep(name, oomScore string, held *process, start func() (*process, error)) {
	backoff := minBackoff
	for {
		begin := time.Now()
		p, err := held, error(nil)
		if held == nil {
			p, err = start()
		}
		held = nil
		if err == nil {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID), []byte(oomScore), 0)
			p.letGo()
			g.con.logf("started %s, pid %d", name, p.PID)
			<-p.Done
			err = exitError(p.Status)
		}
		if time.Since(begin) > stableAfter {
			backoff = minBackoff
		}
		g.con.logf("%s ended: %v; starting it again in %v", name, err, backoff)
		time.Sleep(backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

func exitError(ws unix.WaitStatus) error {
	switch {
	case ws.Signaled():
		return fmt.Errorf("killed by %s", unix.SignalName(ws.Signal()))
	case ws.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", ws.ExitStatus())
	}
	return errors.New("exit code 0")
}
