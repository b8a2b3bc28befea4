// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// forget ends the life of a pod whose VM is gone: its record is finished if it
// is to be kept and the pod has run, else removed, and with the last pod goes the adaptor.
func (a *App) forget(ctx context.Context, n *node.Node, p *record.Pod, finish func(*record.Pod)) error {
	unlock, err := n.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if finish != nil {
		p.Status, p.AgentSocket, p.Ports = record.Exited, "", nil
		finish(p)
		err = n.Pods().End(p.ID, p.ExitCode)
	}
	if p.Keep && !p.Started.IsZero() && finish != nil {
		err = errors.Join(err, n.Pods().Save(p))
	} else {
		err = errors.Join(err, n.Pods().Delete(p.ID))
	}
	if err != nil {
		return err
	}
	return n.StopIfUnused(ctx)
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

// sweep removes pods whose owner was killed, and gives detached ones that still
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
		if err := a.removeDead(ctx, n, p); err != nil {
			fmt.Fprintf(a.Stderr, "outrigger: pod %s was left by a process that died and cannot be removed: %s\n", p.Name, withoutProtocol(err.Error()))
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

// removeDead removes a pod that has no owner any more.
func (a *App) removeDead(ctx context.Context, n *node.Node, p *record.Pod) error {
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
	return n.Pods().Delete(p.ID)
}
