// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

type execFlags struct {
	interactive, tty bool
	env, envFiles    []string
	user, workdir    string
	container        string
}

func (a *App) execCommand() *cobra.Command {
	f := &execFlags{}
	cmd := &cobra.Command{
		Use:   "exec [flags] POD [--] COMMAND [ARG...]",
		Short: "Run a command in a running pod",
		Example: `  outrigger exec web -- ls -l /www
  outrigger exec -it web sh`,
		ValidArgsFunction: a.podNames,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("exec needs a POD and a COMMAND, e.g. outrigger exec web ls")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			return a.exec(cmd.Context(), f, args[0], command)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass stdin to the command")
	flags.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable KEY=VALUE, or KEY to pass on this program's")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "file with one KEY=VALUE a line")
	flags.StringVarP(&f.container, "container", "c", "", "container of a pod of outrigger play, by name (default: the first)")
	flags.StringVarP(&f.user, "user", "u", "", "UID[:GID] (default: the container's user)")
	flags.StringVarP(&f.workdir, "workdir", "w", "", "working directory (default: the container's)")
	return cmd
}

func (a *App) find(name string) (*node.Node, *record.Pod, error) {
	n, err := a.node()
	if err != nil {
		return nil, nil, err
	}
	p, err := n.Pods().Find(name)
	return n, p, err
}

// attach connects to a pod that runs, and brings back what it needs.
func (a *App) attach(ctx context.Context, name string) (*podclient.Pod, *record.Pod, error) {
	n, p, err := a.find(name)
	if err != nil {
		return nil, nil, err
	}
	a.reviveOwn(ctx, n)
	if p, err = n.Pods().Find(p.ID); err != nil { // it may have a new owner now
		return nil, nil, err
	}
	if p.Status != record.Running {
		return nil, nil, fmt.Errorf("pod %s is %s, not running; `outrigger start` runs one again that has ended", p.Name, p.Status)
	}
	pod, err := podclient.New(p.Socket).Attach(ctx, podclient.PodSpec{ID: p.ID, Name: p.Name}, p.AgentSocket)
	if err != nil {
		return nil, nil, fmt.Errorf("pod %s does not answer: %w; see `outrigger console %s`, or remove it with `outrigger rm -f %s`", p.Name, err, p.Name, p.Name)
	}
	return pod, p, nil
}

func (a *App) exec(ctx context.Context, f *execFlags, name string, command []string) error {
	if len(command) == 0 {
		return errors.New("exec needs a COMMAND")
	}
	var term *terminal
	if f.tty {
		var err error
		if term, err = a.openTerminal(f.interactive); err != nil {
			return err
		}
	}
	extra, err := collectEnv(f.envFiles, f.env)
	if err != nil {
		return err
	}
	pod, p, err := a.attach(ctx, name)
	if err != nil {
		return err
	}
	defer pod.Close()
	c, err := p.Container(f.container)
	if err != nil {
		return err
	}
	spec, err := f.spec(c, command, extra)
	if err != nil {
		return err
	}
	if term != nil {
		spec.Rows, spec.Columns = term.size()
	}
	signals, stop := catchSignals()
	defer stop()
	process, err := pod.Container(c.ID, p.TTY).Exec(ctx, spec)
	if err != nil {
		return commandError(fmt.Errorf("exec in pod %s: %w", p.Name, err))
	}
	s := &session{
		process: process, signal: process.Signal, term: term, signals: signals, progress: a.newProgress(true),
		stop:  func() (time.Duration, bool) { return 10 * time.Second, false },
		ended: func(ctx context.Context) (int, error) { return await(ctx, process, process.Signal) },
	}
	code, err := s.run(ctx, a.streams(f.interactive, f.tty))
	if err != nil {
		return err
	}
	return exit(code)
}

// execIn returns a process with the environment, the user and the rights of a container.
func execIn(c record.Container, command []string) podclient.ExecSpec {
	return podclient.ExecSpec{
		Args: command, Env: c.Env, Cwd: c.Cwd, User: podclient.User{UID: c.UID, GID: c.GID, AdditionalGIDs: c.GIDs},
		Capabilities: c.Capabilities, NoNewPrivileges: c.NoNewPrivileges,
	}
}

// spec returns the container's process with the changes by flags.
func (f *execFlags) spec(c record.Container, command, extra []string) (podclient.ExecSpec, error) {
	spec := execIn(c, command)
	spec.TTY, spec.Cwd = f.tty, cmp.Or(f.workdir, c.Cwd)
	if f.tty {
		spec.Env = mergeEnv(spec.Env, []string{"TERM=xterm"})
	}
	spec.Env = mergeEnv(spec.Env, extra)
	if !filepath.IsAbs(spec.Cwd) {
		return spec, fmt.Errorf("--workdir %q: want an absolute path", spec.Cwd)
	}
	if f.user != "" {
		uid, gid, err := parseIDs(f.user)
		if err != nil {
			return spec, err
		}
		spec.User = podclient.User{UID: uid, GID: gid}
	}
	return spec, nil
}
