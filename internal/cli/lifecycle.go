// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// forget ends the life of a pod whose VM is gone, and with the last pod goes the adaptor.
func (a *App) forget(ctx context.Context, n *node.Node, p *record.Pod, finish func(*record.Pod)) error {
	unlock, err := n.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := settle(n, p, finish); err != nil {
		return err
	}
	return n.StopIfUnused(ctx)
}

// settle finishes the record of a pod whose VM is gone, if it is to be kept and the pod has run. Else, and without
// finish, it removes it. The caller holds the lock.
func settle(n *node.Node, p *record.Pod, finish func(*record.Pod)) error {
	if finish == nil {
		return n.Pods().Delete(p.ID)
	}
	p.Status, p.AgentSocket, p.Ports = record.Exited, "", nil
	finish(p)
	err := n.Pods().End(p.ID, p.ExitCode)
	if p.Keep && !p.Started.IsZero() {
		return errors.Join(err, n.Pods().Save(p))
	}
	return errors.Join(err, n.Pods().Delete(p.ID))
}

// lost finishes the record of a pod that has lost its owner and its VM.
func lost(p *record.Pod) {
	p.ExitCode, p.Finished = exitFailure, time.Now().UTC()
	p.Error = "the process that kept the pod was killed, and its VM could not be kept"
}

// stopVM removes the VM of a pod from outside of its owner. The caller does not
// hold the lock.
func (a *App) stopVM(ctx context.Context, n *node.Node, p *record.Pod) error {
	if p.OwnAdaptor {
		if err := a.revive(ctx, n); err != nil {
			return err
		}
	}
	return podclient.New(p.Socket).StopVM(ctx, p.ID)
}

// revive starts adaptors again that have died while pods of ours need them.
func (a *App) revive(ctx context.Context, n *node.Node) error {
	pods, err := n.Pods().List()
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p *record.Pod) bool { return !p.OwnAdaptor || !p.Live() || node.Served(p.Socket) })
	if len(pods) == 0 {
		return nil
	}
	unlock, err := n.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	for _, p := range pods {
		errs = append(errs, a.reviveLocked(ctx, n, p))
	}
	return errors.Join(errs...)
}

// reviveLocked starts the adaptor of a pod again if it has died.
func (a *App) reviveLocked(ctx context.Context, n *node.Node, p *record.Pod) error {
	if !p.OwnAdaptor || node.Served(p.Socket) {
		return nil
	}
	of := n.For(p)
	of.Provider = cmp.Or(of.Provider, defaultProvider)
	return of.EnsureAdaptor(ctx)
}

func needAdaptor(pods []*record.Pod) bool {
	return slices.ContainsFunc(pods, func(p *record.Pod) bool { return p.OwnAdaptor && p.Live() })
}

// sweep ends pods whose owner was killed, and gives detached ones that still
// run a new monitor. The caller holds the lock. What cannot be removed now is
// said and left for the next time.
func (a *App) sweep(ctx context.Context, n *node.Node) {
	pods, err := n.Pods().List()
	if err != nil {
		return
	}
	for _, p := range pods {
		if !p.Live() || p.Owner.Alive() {
			continue
		}
		if p.Detached && p.Status == record.Running && a.adopt(ctx, n, p) == nil {
			continue
		}
		if err := a.removeDead(ctx, n, p, lost); err != nil {
			fmt.Fprintf(a.Stderr, "outrigger: pod %s was left by a process that died and cannot be removed: %s\n", p.Name, commandline.WithoutProtocol(err.Error()))
		}
	}
}

// adopt gives a running detached pod a new monitor.
func (a *App) adopt(ctx context.Context, n *node.Node, p *record.Pod) error {
	probe, err := podclient.New(p.Socket).Attach(ctx, podclient.PodSpec{ID: p.ID, Name: p.Name}, p.AgentSocket)
	if err != nil {
		return err
	}
	probe.Close()
	return a.spawnResume(n, p)
}

// removeDead removes what there is of a pod that has no owner any more, and settles its record.
func (a *App) removeDead(ctx context.Context, n *node.Node, p *record.Pod, finish func(*record.Pod)) error {
	if err := a.reviveLocked(ctx, n, p); err != nil {
		return err
	}
	err := podclient.New(p.Socket).StopVM(ctx, p.ID)
	if p.Network {
		network, netErr := a.network(n)
		if netErr == nil {
			netErr = network.Detach(p.ID)
		}
		err = errors.Join(err, netErr)
	}
	if err != nil {
		return err
	}
	return settle(n, p, finish)
}

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
	return a.removeDead(ctx, n, now, nil)
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
