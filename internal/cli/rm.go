// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// ownerGrace is how long the process that owns a pod may take to remove it.
const ownerGrace = 90 * time.Second

func (a *App) rmCommand() *cobra.Command {
	var force, all bool
	cmd := &cobra.Command{
		Use: "rm [flags] POD... | --all", Short: "Remove pods",
		Long: `Remove pods that have ended, with -f also running ones: their containers are
killed, and pods that are gone already are not an error. Pods whose outrigger was
killed are removed without -f. When nothing is left, the adaptor that was started
for them goes too.`,
		ValidArgsFunction: a.podNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if (len(names) == 0) == !all {
				return errors.New("rm needs names of pods, or --all")
			}
			return a.remove(cmd.Context(), names, all, force || all)
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also pods that are running")
	cmd.Flags().BoolVar(&all, "all", false, "all pods, also running ones")
	return cmd
}

func (a *App) remove(ctx context.Context, names []string, all, force bool) error {
	n, err := a.node()
	if err != nil {
		return err
	}
	pods, err := a.chosen(n, names, all, force)
	var errs []error
	errs = append(errs, err)
	for _, p := range pods {
		if err := a.removeOne(ctx, n, p, force); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.Name, err))
			continue
		}
		fmt.Fprintln(a.Stdout, p.Name)
	}
	unlock, err := n.Lock(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer unlock()
	return errors.Join(append(errs, n.StopIfUnused(ctx))...)
}

// chosen returns the pods to remove. With force a pod that is gone is not an
// error: that is how it is wanted.
func (a *App) chosen(n *node.Node, names []string, all, force bool) ([]*record.Pod, error) {
	if all {
		return n.Pods().List()
	}
	var pods []*record.Pod
	var errs []error
	for _, name := range names {
		p, err := n.Pods().Find(name)
		switch {
		case err == nil:
			pods = append(pods, p)
		case !force || !errors.Is(err, record.ErrNotFound):
			errs = append(errs, err)
		}
	}
	return pods, errors.Join(errs...)
}

func (a *App) removeOne(ctx context.Context, n *node.Node, p *record.Pod, force bool) error {
	if p.Live() && p.Owner.Alive() {
		if !force {
			return errors.New("it is running; -f removes it nevertheless")
		}
		a.endOwner(ctx, p)
	}
	unlock, err := n.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := n.Pods().Find(p.ID)
	if errors.Is(err, record.ErrNotFound) { // its owner has removed it
		return nil
	}
	if err != nil {
		return err
	}
	if !now.Live() {
		return n.Pods().Delete(now.ID)
	}
	return a.removeDead(ctx, n, now)
}

// endOwner lets the owner remove its pod, and kills an owner that does not.
func (a *App) endOwner(ctx context.Context, p *record.Pod) {
	p.Owner.Signal(syscall.SIGTERM)
	if p.Status == record.Running {
		if pod, err := podclient.New(p.Socket).Attach(ctx, podclient.PodSpec{ID: p.ID, Name: p.Name}, p.AgentSocket); err == nil {
			for _, c := range p.Containers {
				pod.Container(c.ID, p.TTY).Signal(ctx, syscall.SIGKILL)
			}
			pod.Close()
		}
	}
	if !p.Owner.WaitGone(ownerGrace) {
		p.Owner.Signal(syscall.SIGKILL)
		p.Owner.WaitGone(10 * time.Second)
	}
}
