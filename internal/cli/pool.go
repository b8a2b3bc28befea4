// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/protocol/adaptor"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// defaultPool is the name of a pool without one.
	defaultPool = "default"
	// poolAnswer bounds the wait of `run` for what a pool says of itself.
	poolAnswer = 2 * time.Second
	// poolLook is the pause between two looks at a pool that is being filled.
	poolLook = 50 * time.Millisecond
	// drainAttempts bounds how often the adaptor of a pool may be gone in the middle of a call.
	drainAttempts = 5
)

func (a *App) poolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pool", Short: "Keep VMs that have booted and wait for `outrigger run`", Args: cobra.NoArgs,
		Long: `Keep VMs that have booted and wait. outrigger run with the same provider,
settings and size takes one of them, and its start is without the boot; the pool
makes another in its place. Each VM serves one pod, once.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.poolCreateCommand(), a.poolListCommand(), a.poolRemoveCommand())
	return cmd
}

func (a *App) poolCreateCommand() *cobra.Command {
	f, size := &runFlags{}, 0
	cmd := &cobra.Command{
		Use: "create [NAME]", Short: "Make a pool and wait until its VMs do", Args: cobra.MaximumNArgs(1),
		Long: `Make a pool, and return when all its VMs wait. A process of its own keeps it
filled until outrigger pool rm. If a VM cannot be made nothing stays.`,
		Example: `  outrigger pool create --size 2
  outrigger pool create large --size 1 --cpus 4 --memory 2GiB`,
		RunE: func(cmd *cobra.Command, args []string) error {
			pool, err := a.newPool(f, size, append(args, defaultPool)[0])
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
			defer stop()
			return a.createPool(ctx, pool, f.quiet)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&size, "size", 0, "how many VMs wait")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	f.registerVM(a, flags)
	return cmd
}

func (a *App) newPool(f *runFlags, size int, name string) (*node.Pool, error) {
	var wrong []error
	if size < 1 {
		wrong = append(wrong, fmt.Errorf("--size %d: want at least 1", size))
	}
	if checkName("", name) != nil || len(name) > node.MaxPoolName {
		wrong = append(wrong, fmt.Errorf("name %q: want at most %d of a-z, 0-9 and -, with a letter or digit at both ends", name, node.MaxPoolName))
	}
	if a.socket != "" {
		wrong = append(wrong, fmt.Errorf("--socket: the adaptor at %s runs already; a pool has one of its own", a.socket))
	}
	if err := errors.Join(append(wrong, f.checkAdaptor(a), f.checkSize(a))...); err != nil {
		return nil, err
	}
	pool := &node.Pool{Name: name, Provider: a.provider, AdaptorArgs: f.adaptorArgs(a), Size: size, Created: time.Now().UTC()}
	pool.VCPUs, pool.MemoryMiB = f.vmSize()
	return pool, nil
}

// createPool makes a pool and returns when its VMs wait. If they cannot be made it leaves
// nothing.
func (a *App) createPool(ctx context.Context, pool *node.Pool, quiet bool) error {
	n, err := a.node()
	if err != nil {
		return err
	}
	p := a.newProgress(quiet)
	defer p.done()
	p.update("start", "starting the pool's adaptor ("+pool.Provider+")")
	if err := a.startPool(ctx, n, pool); err != nil {
		return err
	}
	if err := a.awaitPool(ctx, n.OfPool(pool), pool, p); err != nil {
		err = cmp.Or(context.Cause(ctx), err)
		return errors.Join(fmt.Errorf("pool %s: %w", pool.Name, err), a.removePool(context.WithoutCancel(ctx), n, pool))
	}
	p.done()
	fmt.Fprintln(a.Stdout, pool.Name)
	return nil
}

func (a *App) startPool(ctx context.Context, n *node.Node, pool *node.Pool) error {
	unlock, err := n.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	a.sweep(ctx, n)
	err = n.AddPool(pool)
	if err == nil {
		of := n.OfPool(pool)
		if err = of.EnsureAdaptor(ctx); err != nil {
			err = errors.Join(err, of.ForgetPool())
		}
	}
	if err != nil {
		return errors.Join(err, n.StopIfUnused(context.WithoutCancel(ctx)))
	}
	return nil
}

// awaitPool returns when all VMs of a pool wait.
func (a *App) awaitPool(ctx context.Context, of *node.Node, pool *node.Pool, p progress) error {
	for {
		now, err := podclient.New(of.Socket()).Pool(ctx, false)
		switch {
		case err != nil:
			return err
		case now.LastError != "":
			return errors.New(now.LastError)
		case int(now.Ready) >= pool.Size:
			return nil
		}
		text := fmt.Sprintf("%d of %d VMs wait", now.Ready, pool.Size)
		p.update(text, text)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(poolLook):
		}
	}
}

// poolFor returns the node of a pool in which a VM waits that was made as this run wants it,
// or n. Which pod gets it is decided later: if it is another, this one's VM is made there.
func (a *App) poolFor(ctx context.Context, n *node.Node, req *runRequest) *node.Node {
	vcpus, memoryMiB := req.vmSize()
	pools, _ := n.Pools()
	for _, p := range pools {
		if p.Provider != n.Provider || p.VCPUs != vcpus || p.MemoryMiB != memoryMiB || !slices.Equal(p.AdaptorArgs, n.AdaptorArgs) {
			continue
		}
		of := n.OfPool(p)
		if now, err := askPool(ctx, of); err == nil && now.Ready > 0 {
			return of
		}
	}
	return n
}

func askPool(ctx context.Context, of *node.Node) (*adaptor.PoolResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, poolAnswer)
	defer cancel()
	return podclient.New(of.Socket()).Pool(ctx, false)
}

// listedPool is one pool in the output of pool ls.
type listedPool struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	Ready    int32  `json:"ready"`
	Starting int32  `json:"starting"`
	Size     int    `json:"size"`
	// Hits are the pods that have taken a VM since the pool's process started.
	Hits      int64     `json:"hits"`
	VCPUs     int       `json:"vcpus,omitempty"`
	MemoryMiB int       `json:"memoryMiB,omitempty"`
	Created   time.Time `json:"created"`
	Error     string    `json:"error,omitempty"`
}

func (a *App) poolListCommand() *cobra.Command {
	return lists(a, &cobra.Command{
		Use: "ls", Short: "List the pools", Args: cobra.NoArgs,
		Long: `List the pools of this host. A pool whose process was killed gets another, which
keeps the VMs that wait and removes those that were on their way.`,
	}, a.listPools, a.printPools)
}

func (a *App) printPools(w io.Writer, pools []listedPool) {
	fmt.Fprintln(w, "NAME\tPROVIDER\tREADY\tSTARTING\tSIZE\tHITS\tCPUS\tMEMORY\tAGE")
	for _, p := range pools {
		cpus, memory := "default", "default"
		if p.VCPUs > 0 {
			cpus = fmt.Sprint(p.VCPUs)
		}
		if p.MemoryMiB > 0 {
			memory = fmt.Sprintf("%dMiB", p.MemoryMiB)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", p.Name, p.Provider, p.Ready, p.Starting, p.Size, p.Hits, cpus, memory, duration.HumanDuration(time.Since(p.Created)))
		if p.Error != "" {
			fmt.Fprintf(a.Stderr, "outrigger: pool %s: %s\n", p.Name, p.Error)
		}
	}
}

func (a *App) listPools(ctx context.Context, _ []string) ([]listedPool, error) {
	n, err := a.node()
	if err != nil {
		return nil, err
	}
	pools, err := n.Pools()
	list := []listedPool{}
	if err != nil || len(pools) == 0 {
		return list, err
	}
	unlock, err := n.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	a.sweep(ctx, n)
	for _, p := range pools {
		l := listedPool{Name: p.Name, Provider: p.Provider, Size: p.Size, VCPUs: p.VCPUs, MemoryMiB: p.MemoryMiB, Created: p.Created}
		of := n.OfPool(p)
		now, err := (*adaptor.PoolResponse)(nil), of.EnsureAdaptor(ctx)
		if err == nil {
			now, err = askPool(ctx, of)
		}
		if l.Ready, l.Starting, l.Hits, l.Error = now.GetReady(), now.GetStarting(), now.GetHits(), now.GetLastError(); err != nil {
			l.Error = commandline.WithoutProtocol(err.Error())
		}
		list = append(list, l)
	}
	return list, nil
}

func (a *App) poolRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Short: "Remove pools and their VMs", Args: cobra.MinimumNArgs(1),
		Long: "Remove pools with the VMs that wait. Pods in VMs that they had run on.",
		RunE: func(cmd *cobra.Command, names []string) error {
			n, err := a.node()
			if err != nil {
				return err
			}
			pools, err := n.Pools()
			if err != nil {
				return err
			}
			var errs []error
			for _, name := range names {
				i := slices.IndexFunc(pools, func(p *node.Pool) bool { return p.Name == name })
				if i < 0 {
					errs = append(errs, fmt.Errorf("no such pool: %q; `outrigger pool ls` lists them", name))
				} else if err := a.removePool(cmd.Context(), n, pools[i]); err != nil {
					errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
				} else {
					fmt.Fprintln(a.Stdout, name)
				}
			}
			return errors.Join(errs...)
		},
	}
}

// removePool removes the VMs that wait in a pool, then the pool. VMs may take long: the lock is
// held only when they are gone.
func (a *App) removePool(ctx context.Context, n *node.Node, pool *node.Pool) error {
	if err := a.drainPool(ctx, n, pool); err != nil {
		return err
	}
	unlock, err := n.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	a.sweep(ctx, n)
	of := n.OfPool(pool)
	if node.Served(of.Socket()) { // one that was started again meanwhile has others
		if _, err := podclient.New(of.Socket()).Pool(ctx, true); err != nil {
			return err
		}
	}
	return errors.Join(of.ForgetPool(), n.StopIfUnused(ctx))
}

// drainPool removes the VMs that wait. An adaptor that dies meanwhile, or was just killed, has another go on.
func (a *App) drainPool(ctx context.Context, n *node.Node, pool *node.Pool) (err error) {
	for range drainAttempts {
		err = a.tryToDrain(ctx, n, pool)
		if gone := errors.Is(err, ttrpc.ErrClosed) || errors.Is(err, unix.ECONNREFUSED); !gone || poll.Sleep(ctx, poolLook) != nil {
			break
		}
	}
	return err
}

func (a *App) tryToDrain(ctx context.Context, n *node.Node, pool *node.Pool) error {
	of := n.OfPool(pool)
	if !node.Served(of.Socket()) {
		if !of.HasVMs() {
			return nil
		}
		unlock, err := n.Lock(ctx)
		if err != nil {
			return err
		}
		err = of.EnsureAdaptor(ctx)
		unlock()
		if err != nil {
			return err
		}
	}
	_, err := podclient.New(of.Socket()).Pool(ctx, true)
	return err
}
