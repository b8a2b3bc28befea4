// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// parseSignal reads a signal by its number or its name, with SIG or without.
func parseSignal(text string) (syscall.Signal, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		n = int(unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")))
	}
	if n < 1 || n > 64 {
		return 0, errors.New("want a name such as TERM, or a number from 1 to 64")
	}
	return syscall.Signal(n), nil
}

// eachPod makes a command that does one thing with each pod that it is given, and prints what that returns.
func (a *App) eachPod(use, short, long string, do func(ctx context.Context, name string) (any, error)) *cobra.Command {
	return &cobra.Command{
		Use: use + " POD...", Short: short, Long: long, Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.podNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			var errs []error
			for _, name := range names {
				said, err := do(cmd.Context(), name)
				if errs = append(errs, err); err == nil && said != nil {
					fmt.Fprintln(a.Stdout, said)
				}
			}
			return errors.Join(errs...)
		},
	}
}

func (a *App) killCommand() *cobra.Command {
	var sig syscall.Signal
	cmd := a.eachPod("kill", "Send a signal to the first process of containers", "", func(ctx context.Context, name string) (any, error) {
		pod, p, err := a.attach(ctx, name)
		if err != nil {
			return nil, err
		}
		defer pod.Close()
		if err := pod.Container(p.First().ID, p.TTY).Process.Signal(ctx, sig); err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.Name, err)
		}
		return name, nil
	})
	cmd.Flags().VarP(parse(&sig, "KILL", parseSignal), "signal", "s", "which one, by name or number")
	return cmd
}

func (a *App) stopCommand() *cobra.Command {
	grace := time.Duration(-1)
	cmd := a.eachPod("stop", "End containers in order", `Send a container SIGTERM, or the signal that its image or run --stop-signal says,
and SIGKILL if it has not ended after the grace time. The pod's VM goes with its
container; the record and the log of a detached pod stay, unless it was run with --rm.`,
		func(ctx context.Context, name string) (any, error) {
			n, p, err := a.find(name)
			if err != nil {
				return nil, err
			}
			return name, a.stop(ctx, n, p.ID, grace)
		})
	graceFlag(cmd, &grace)
	return cmd
}

func graceFlag(cmd *cobra.Command, into *time.Duration) {
	cmd.Flags().VarP(parse(into, "", parseSeconds), "time", "t", "grace time in seconds, or with a unit")
	cmd.Flags().Lookup("time").DefValue = "run --stop-timeout"
}

// stop makes a pod's owner end the containers and returns when it has removed the VM. A negative grace time is
// that of the run.
func (a *App) stop(ctx context.Context, n *node.Node, id string, grace time.Duration) error {
	p, grace, err := a.askStop(ctx, n, id, grace)
	if p == nil || err != nil {
		return err
	}
	if err := p.Owner.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	gone := p.Owner.WaitGone(grace + ownerGrace)
	if left, err := n.Pods().Find(id); !gone || err == nil && left.Live() {
		return fmt.Errorf("its process %d does not remove the VM; `outrigger rm -f %s` does", p.Owner.PID, p.Name)
	}
	return nil
}

// askStop writes down for the owner of a pod how long the containers may take. It returns no pod if that has ended.
func (a *App) askStop(ctx context.Context, n *node.Node, id string, grace time.Duration) (*record.Pod, time.Duration, error) {
	a.reviveOwn(ctx, n)
	unlock, err := n.Lock(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	p, err := n.Pods().Find(id)
	if errors.Is(err, record.ErrNotFound) || err == nil && !p.Live() {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	req, err := requestOf(p)
	if err != nil {
		return nil, 0, err
	}
	if grace < 0 {
		grace = req.StopTimeout
	}
	return p, grace, n.Pods().AskStop(id, grace)
}

func (a *App) waitCommand() *cobra.Command {
	return a.eachPod("wait", "Wait until pods end, and print their exit codes", "", a.await)
}

// lookInterval is the pause between two looks whether the owner of a pod has ended.
const lookInterval = 20 * time.Millisecond

// await returns the exit code of a pod, when its owner has removed the VM.
func (a *App) await(ctx context.Context, name string) (any, error) {
	n, p, err := a.find(name)
	if err != nil {
		return nil, err
	}
	ending, err := n.Pods().Ending(p.ID)
	if err != nil && p.Live() {
		return nil, err
	}
	defer ending.Close()
	for p.Live() {
		for p.Owner.Alive() {
			if err := poll.Sleep(ctx, lookInterval); err != nil {
				return nil, err
			}
		}
		if text, err := io.ReadAll(ending); err == nil && len(text) > 0 {
			return strconv.Atoi(string(text))
		}
		a.reviveOwn(ctx, n) // its owner was killed
		if p, err = n.Pods().Find(p.ID); err != nil || p.Live() && !p.Owner.Alive() {
			return nil, fmt.Errorf("the process that owned pod %s was killed, so its exit code is not known", name)
		}
	}
	return p.ExitCode, nil
}

// top runs the image's ps: the agent lists no processes.
func (a *App) topCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "top POD [ARG...]", Short: "Show the processes of a container, with the image's own ps",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.podNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			pod, p, err := a.attach(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer pod.Close()
			code, err := a.execAsRoot(cmd.Context(), pod, p, append([]string{"ps"}, args[1:]...), podclient.IO{Stdout: a.Stdout, Stderr: a.Stderr})
			return errors.Join(err, exit(code))
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// execAsRoot runs a program of the first container with its environment, as root, until it ends or nobody takes its output.
func (a *App) execAsRoot(ctx context.Context, pod *podclient.Pod, p *record.Pod, args []string, streams podclient.IO) (int, error) {
	spec := execIn(p.First(), args)
	spec.User, spec.Cwd = podclient.User{}, "/"
	process, err := pod.Container(p.First().ID, p.TTY).Exec(ctx, spec)
	if err != nil {
		return 0, commandError(fmt.Errorf("pod %s: %s: %w", p.Name, args[0], err))
	}
	process.Stream(streams)
	return await(ctx, process, process.Signal)
}
