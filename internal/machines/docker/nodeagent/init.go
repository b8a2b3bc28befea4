// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Main runs the program node-agent and returns the exit code. As the first process of
// a container it starts itself again as a child: the first process reaps all orphans,
// and would otherwise reap children that the agent waits for.
func Main(args []string) int {
	log := newLog(os.Stderr)
	mode := ""
	if len(args) == 1 {
		mode = args[0]
	}
	switch {
	case mode == "run" || mode == "bootstrap":
		return work(mode, log)
	case len(args) == 0 && os.Getpid() == 1:
		return first(log)
	case len(args) > 1 && args[0] == HandOver:
		return handOver(args[1:], log)
	}
	fmt.Fprint(os.Stderr, "usage: node-agent            as the first process of a container: everything\n"+
		"       node-agent run        services and bootstrap\n       node-agent bootstrap  the bootstrap alone\n"+
		"       node-agent exec PROGRAM [ARGUMENT...]  as the first process, of an image with systemd: the image's own first process\n")
	return 2
}

// newAgent returns an agent of this machine that redacts its output, and a
// function to call at the end.
func newAgent() (a *Agent, end func(), err error) {
	secrets := &Secrets{}
	services, endServices, err := (&mask{Secrets: secrets, out: os.Stdout}).pipe()
	if err != nil {
		return nil, nil, err
	}
	commands, endCommands, err := (&mask{Secrets: secrets, out: os.Stdout, ofCommand: true}).pipe()
	if err != nil {
		endServices()
		return nil, nil, err
	}
	log := newLog(&mask{Secrets: secrets, out: os.Stderr, ofCommand: true})
	a = &Agent{Root: "/", Log: log, Output: services, Commands: commands, Secrets: secrets, Wait: poll.Pace{First: 100 * time.Millisecond, Max: time.Second}}
	return a, func() { endCommands(); endServices() }, nil
}

func newLog(out io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, nil)).With("program", "node-agent")
}

// stopLimit is how long the machine may take to stop; an engine kills what takes
// more than 10 s.
const stopLimit = 8 * time.Second

func work(mode string, log *slog.Logger) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	a, end, err := newAgent()
	if err != nil {
		log.Error("start", "error", err)
		return 1
	}
	defer end()
	log = a.Log
	services := make(chan struct{})
	go func() {
		defer close(services)
		if mode == "run" {
			a.Services(ctx)
		}
	}()
	state, err := a.Bootstrap(ctx)
	switch {
	case mode == "bootstrap" && err == nil && state.Phase == PhaseDone:
		return 0
	case mode == "bootstrap":
		log.Error("bootstrap", "error", cmp.Or(err, errors.New(state.Message)))
		return 1
	case err != nil && ctx.Err() == nil:
		log.Error("bootstrap cannot go on", "error", err)
		return 1 // the engine starts the container again
	}
	// A machine whose bootstrap has failed stays, so that people can debug it.
	<-ctx.Done()
	<-services
	return 0
}

// first runs the first process of the machine.
func first(log *slog.Logger) int {
	errs := prepareMounts()
	if settings, err := (&Agent{Root: "/"}).settings(); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, keepPrivate(settings.Private)...)
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("the container's mounts stay as they are", "error", err)
	}
	cmd := exec.Command("/proc/self/exe", "run")
	cmd.Args[0] = "node-agent"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		log.Error("start", "error", err)
		return 1
	}
	go func() {
		<-signals
		cmd.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(stopLimit, func() { cmd.Process.Kill() })
	}()
	return reap(cmd.Process.Pid)
}

// reap collects processes until the one that matters has ended.
func reap(pid int) int {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 1
		case ended == pid && status.Exited():
			return status.ExitStatus()
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal())
		}
	}
}
