// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/cli/containerlog"
	"github.com/outrigger/outrigger/internal/cli/record"
)

func (a *App) startCommand() *cobra.Command {
	return a.eachPod("start", "Run pods again that have ended", `Run detached pods again that have ended, as they were asked for then: in a new VM, with the
files of the image. Their logs go on.`,
		func(ctx context.Context, name string) (any, error) {
			_, p, err := a.find(name)
			if err != nil {
				return nil, err
			}
			if p.Live() {
				return name, nil
			}
			return nil, a.startAgain(ctx, p)
		})
}

func (a *App) restartCommand() *cobra.Command {
	grace := time.Duration(-1)
	cmd := a.eachPod("restart", "Stop detached pods and run them again", `Stop detached pods like outrigger stop, and run them again as they were asked for, in
new VMs with the files of the image.`,
		func(ctx context.Context, name string) (any, error) {
			n, p, err := a.find(name)
			if err != nil {
				return nil, err
			}
			if err := againable(p); err != nil {
				return nil, err
			}
			if err := a.stop(ctx, n, p.ID, grace); err != nil {
				return nil, err
			}
			return nil, a.startAgain(ctx, p)
		})
	graceFlag(cmd, &grace)
	return cmd
}

func againable(p *record.Pod) error {
	if p.Detached {
		return nil
	}
	return fmt.Errorf("pod %s was not started with --detach: run it again", p.Name)
}

// startAgain runs a pod again, and prints its name.
func (a *App) startAgain(ctx context.Context, p *record.Pod) error {
	req, err := requestOf(p)
	if err != nil {
		return err
	}
	if err := againable(p); err != nil {
		return err
	}
	return a.startMonitor(ctx, req, true)
}

func (a *App) attachCommand() *cobra.Command {
	return &cobra.Command{
		Use: "attach POD", Short: "Follow the output of a detached pod, and pass signals on",
		Long: `Show the last ten lines of a detached pod's output and what follows, pass signals on to its
first process, and return its exit code. A detached pod has no input.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.podNames,
		RunE: func(cmd *cobra.Command, args []string) error { return a.follow(cmd.Context(), args[0]) },
	}
}

func (a *App) follow(ctx context.Context, name string) error {
	pod, p, err := a.attach(ctx, name)
	if err != nil {
		return err
	}
	defer pod.Close()
	if err := hasLog(p); err != nil {
		return err
	}
	signals, stop := catchSignals()
	defer stop()
	go func() {
		for sig := range signals {
			if sig != unix.SIGWINCH {
				_, now, _ := a.find(p.ID) // it may have been started again
				pod.Container(cmp.Or(now, p).First().ID, p.TTY).Process.Signal(ctx, sig.(syscall.Signal))
			}
		}
	}()
	ended := make(chan outcome, 1)
	go func() {
		code, err := a.await(ctx, p.ID)
		n, _ := code.(int)
		ended <- outcome{n, err}
	}()
	if err := a.printLog(ctx, p, containerlog.Options{Tail: 10, Follow: true}); err != nil {
		return err
	}
	out := <-ended
	if out.err != nil {
		return out.err
	}
	return exit(out.code)
}

// restartPolicy is --restart, and restartPolicy of a manifest: whether a container is started again that has ended by
// itself.
type restartPolicy struct {
	Always, OnFailure bool
	// Most is how often at most; 0 means any number.
	Most int
}

func parseRestart(text string) (p restartPolicy, err error) {
	name, most, limited := strings.Cut(text, ":")
	switch name {
	case "", "no":
	case "always", "unless-stopped":
		p.Always = true
	case "on-failure":
		p.OnFailure = true
		if limited {
			p.Most, err = strconv.Atoi(most)
		}
	default:
		err = errors.New("unknown")
	}
	if err != nil || limited && (!p.OnFailure || p.Most < 1) {
		return p, errors.New("want no, on-failure[:TIMES], always or unless-stopped")
	}
	return p, nil
}

func (p restartPolicy) again(code, restarts int) bool {
	return p.Always || p.OnFailure && code != 0 && (p.Most == 0 || restarts < p.Most)
}
