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

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// seconds is a flag as docker has it: a number of seconds, or a duration with its unit.
type seconds struct{ *time.Duration }

func secondsVar(into *time.Duration, def time.Duration) seconds {
	*into = def
	return seconds{into}
}

func (s seconds) Type() string { return "duration" }

func (s seconds) String() string {
	if s.Duration == nil {
		return ""
	}
	return s.Duration.String()
}

func (s seconds) Set(text string) (err error) {
	if _, plain := strconv.Atoi(text); plain == nil {
		text += "s"
	}
	*s.Duration, err = time.ParseDuration(text)
	return err
}

// parseSignal reads a signal by its number or its name, with SIG or without.
func parseSignal(text string) (syscall.Signal, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		n = int(unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")))
	}
	if n < 1 || n > 64 {
		return 0, fmt.Errorf("signal %q: want a name such as TERM, or a number from 1 to 64", text)
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
	var signal string
	cmd := a.eachPod("kill", "Send a signal to the first process of containers", "", func(ctx context.Context, name string) (any, error) {
		sig, err := parseSignal(signal)
		if err != nil {
			return nil, err
		}
		pod, p, err := a.attach(ctx, name)
		if err != nil {
			return nil, err
		}
		defer pod.Close()
		return name, pod.Container(p.ContainerID, p.TTY).Process.Signal(ctx, sig)
	})
	cmd.Flags().StringVarP(&signal, "signal", "s", "KILL", "which one, by name or number")
	return cmd
}

func (a *App) stopCommand() *cobra.Command {
	grace := time.Duration(-1)
	cmd := a.eachPod("stop", "End containers in order", `Send a container SIGTERM, or the signal that its image or run --stop-signal says,
and SIGKILL if it has not ended after the grace time. The pod's VM goes with its
container; of a pod that was run with --rm=false the record and the log stay.`,
		func(ctx context.Context, name string) (any, error) {
			n, p, err := a.find(name)
			if err != nil {
				return nil, err
			}
			return name, a.stop(ctx, n, p, grace)
		})
	graceFlag(cmd, &grace)
	return cmd
}

func graceFlag(cmd *cobra.Command, into *time.Duration) {
	cmd.Flags().VarP(seconds{into}, "time", "t", "grace time in seconds, or with a unit")
	cmd.Flags().Lookup("time").DefValue = "run --stop-timeout"
}

// stop ends a pod's container and returns when its owner has removed the VM. A negative grace time is
// that of the run.
func (a *App) stop(ctx context.Context, n *node.Node, p *record.Pod, grace time.Duration) error {
	if !p.Live() {
		return nil
	}
	pod, p, err := a.attach(ctx, p.ID)
	if err != nil {
		return err
	}
	defer pod.Close()
	req, err := requestOf(p)
	if err != nil {
		return err
	}
	if grace < 0 {
		grace = req.StopTimeout
	}
	first := pod.Container(p.ContainerID, p.TTY).Process
	if req.Pod != nil || req.Restart != (restartPolicy{}) {
		err = p.Owner.Signal(syscall.SIGTERM) // which would start containers again, and knows all of them
	} else {
		sig, _ := parseSignal(cmp.Or(p.StopSignal, "TERM"))
		err = first.Signal(ctx, cmp.Or(sig, syscall.SIGTERM)) // an image may name what there is not
	}
	if err != nil {
		return err
	}
	ended, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if _, err := first.Ended(ended); err != nil && ended.Err() != nil {
		first.Signal(ctx, syscall.SIGKILL) // it may have ended just now
	}
	if !p.Owner.WaitGone(ownerGrace) {
		return fmt.Errorf("its process %d does not remove the VM; `outrigger rm -f %s` does", p.Owner.PID, p.Name)
	}
	return nil
}

func (a *App) waitCommand() *cobra.Command {
	return a.eachPod("wait", "Wait until containers end, and print their exit codes", "", a.await)
}

// await returns the exit code of a pod's container, when its owner has removed the VM.
func (a *App) await(ctx context.Context, name string) (any, error) {
	n, p, err := a.find(name)
	if err != nil {
		return nil, err
	}
	if !p.Live() {
		return p.ExitCode, nil
	}
	pod, p, err := a.attach(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	defer pod.Close()
	code, err := pod.Container(p.ContainerID, p.TTY).Ended(ctx)
	p.Owner.WaitGone(ownerGrace)
	if err != nil { // the VM may have gone before its reply came
		if now, found := n.Pods().Find(p.ID); found == nil && !now.Live() {
			return now.ExitCode, nil
		}
		return nil, fmt.Errorf("pod %s has ended, and its exit code is not known: %w; run --rm=false keeps it", p.Name, err)
	}
	return code, nil
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

// execAsRoot runs a program of the container with its environment, as root, until it ends.
func (a *App) execAsRoot(ctx context.Context, pod *podclient.Pod, p *record.Pod, args []string, streams podclient.IO) (int, error) {
	spec := podclient.ExecSpec{Args: args, Env: p.Env, Capabilities: p.Capabilities}
	process, err := pod.Container(p.ContainerID, p.TTY).Exec(ctx, spec)
	if err != nil {
		return 0, commandError(fmt.Errorf("pod %s: %s: %w", p.Name, args[0], err))
	}
	process.Stream(streams)
	return process.Wait(ctx)
}
