// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/cli/containerlog"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/redact"
)

func (a *App) logsCommand() *cobra.Command {
	var tail string
	opts := containerlog.Options{}
	cmd := &cobra.Command{
		Use: "logs [flags] POD", Short: "Show the output of a detached pod",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.podNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Tail = -1
			if tail != "all" {
				n, err := strconv.Atoi(tail)
				if err != nil || n < 0 {
					return fmt.Errorf("--tail %q: want a number of lines, or all", tail)
				}
				opts.Tail = n
			}
			return a.logs(cmd.Context(), args[0], opts)
		},
	}
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "go on until the container ends")
	cmd.Flags().BoolVar(&opts.Timestamps, "timestamps", false, "put the time before each line")
	cmd.Flags().StringVarP(&tail, "tail", "n", "all", "only so many lines from the end")
	return cmd
}

func (a *App) logs(ctx context.Context, name string, opts containerlog.Options) error {
	n, p, err := a.find(name)
	if err != nil {
		return err
	}
	if err := hasLog(p); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if opts.Follow {
		a.reviveOwn(ctx, n)
	}
	if err := a.printLog(ctx, p, opts); !errors.Is(err, unix.EPIPE) {
		return err
	}
	return nil
}

func hasLog(p *record.Pod) error {
	if p.Detached {
		return nil
	}
	return fmt.Errorf("pod %s was not started with --detach: its output goes to the terminal of process %d", p.Name, p.Owner.PID)
}

// printLog prints a pod's log, with Follow until the pod has ended.
func (a *App) printLog(ctx context.Context, p *record.Pod, opts containerlog.Options) error {
	n, err := a.node()
	if err != nil {
		return err
	}
	opts.Ended = func() bool {
		now, err := n.Pods().Find(p.ID)
		return err != nil || !now.Live()
	}
	if err := containerlog.Print(ctx, n.Pods().LogPath(p.ID), a.Stdout, a.Stderr, opts); err != nil {
		return fmt.Errorf("log of pod %s: %w", p.Name, err)
	}
	return nil
}

func (a *App) consoleCommand() *cobra.Command {
	var follow bool
	var tail string
	cmd := &cobra.Command{
		Use: "console [flags] POD", Short: "Show the serial console of a pod's VM",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.podNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			lines, err := strconv.Atoi(tail)
			size := int64(maxConsole)
			if err != nil {
				lines = maxConsole
				size, err = parseSize(tail)
			}
			if err != nil || size > maxConsole || lines < 1 {
				return fmt.Errorf("--tail %q: want a number of lines, or a size of at most 1MiB with its unit", tail)
			}
			return a.console(cmd.Context(), args[0], lines, size, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the VM ends")
	cmd.Flags().StringVar(&tail, "tail", "64KiB", "how much from the end: a number of lines, or a size with its unit")
	return cmd
}

// maxConsole is the most that an adaptor gives at a time, in bytes.
const maxConsole = 1 << 20

// consoleInterval is the pause between two looks at a followed console.
const consoleInterval = 250 * time.Millisecond

func (a *App) console(ctx context.Context, name string, lines int, size int64, follow bool) error {
	client, id, err := a.findSandbox(ctx, name)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	seen, err := client.Console(ctx, id, size)
	if err != nil {
		return fmt.Errorf("console of pod %s: %w", name, err)
	}
	out := redact.Console(a.Stdout)
	all := slices.Collect(bytes.Lines(seen))
	out.Write(bytes.Join(all[max(0, len(all)-lines):], nil))
	for follow {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(consoleInterval):
		}
		now, err := client.Console(ctx, id, maxConsole)
		if err != nil {
			return nil // the VM is gone
		}
		if _, err := out.Write(newSince(seen, now)); err != nil {
			return nil
		}
		seen = now
	}
	return nil
}

// newSince returns what follows the end of seen in now.
func newSince(seen, now []byte) []byte {
	mark := seen[max(0, len(seen)-4096):]
	if i := bytes.LastIndex(now, mark); i >= 0 {
		return now[i+len(mark):]
	}
	return now
}

// findSandbox finds a pod of ours, or with --socket one of that adaptor, by
// name or id.
func (a *App) findSandbox(ctx context.Context, name string) (*podclient.Client, string, error) {
	n, p, err := a.find(name)
	if err == nil {
		if err := a.revive(ctx, n); err != nil {
			return nil, "", err
		}
		return podclient.New(p.Socket), p.ID, nil
	}
	if a.socket != "" {
		client := podclient.New(a.socket)
		sandboxes, listErr := client.Sandboxes(ctx)
		if listErr != nil {
			return nil, "", fmt.Errorf("%w; nor at %s (--socket): %w", err, a.socket, listErr)
		}
		for _, s := range sandboxes {
			if s.PodName == name || s.Id == name {
				return client, s.Id, nil
			}
		}
	}
	return nil, "", err
}
