// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
)

// usage is one pod's resource usage.
type usage struct {
	Name             string  `json:"name"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	MemoryBytes      uint64  `json:"memoryBytes"`
	MemoryLimitBytes uint64  `json:"memoryLimitBytes,omitempty"`
	PIDs             uint64  `json:"pids"`
	RxBytes          uint64  `json:"rxBytes"`
	TxBytes          uint64  `json:"txBytes"`
}

func (a *App) statsCommand() *cobra.Command {
	return lists(a, &cobra.Command{Use: "stats [POD...]", Short: "Show what running pods use", ValidArgsFunction: a.podNames}, a.stats, printStats)
}

func (a *App) stats(ctx context.Context, names []string) ([]usage, error) {
	if len(names) == 0 {
		n, err := a.node()
		if err != nil {
			return nil, err
		}
		pods, err := n.Pods().List()
		if err != nil {
			return nil, err
		}
		for _, p := range pods {
			if p.Status == "running" {
				names = append(names, p.ID)
			}
		}
	}
	all := []usage{}
	for _, name := range names {
		u, err := a.statsOf(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

func (a *App) statsOf(ctx context.Context, name string) (usage, error) {
	pod, p, err := a.attach(ctx, name)
	if err != nil {
		return usage{}, err
	}
	defer pod.Close()
	resp, err := pod.Container(p.First().ID, p.TTY).Stats(ctx)
	if err != nil {
		return usage{}, fmt.Errorf("stats of pod %s: %w", p.Name, err)
	}
	cg := resp.GetCgroupStats()
	u := usage{
		Name: p.Name, PIDs: cg.GetPidsStats().GetCurrent(),
		CPUSeconds:  math.Round(float64(cg.GetCpuStats().GetCpuUsage().GetTotalUsage())/1e6) / 1e3,
		MemoryBytes: cg.GetMemoryStats().GetUsage().GetUsage(),
	}
	// Without a limit the kernel tells a number close to 2^63 (cgroup v1).
	if limit := cg.GetMemoryStats().GetUsage().GetLimit(); limit < 1<<60 {
		u.MemoryLimitBytes = limit
	}
	for _, n := range resp.GetNetworkStats() {
		if n.Name != "lo" {
			u.RxBytes += n.RxBytes
			u.TxBytes += n.TxBytes
		}
	}
	return u, nil
}

func printStats(w io.Writer, all []usage) {
	fmt.Fprintln(w, "NAME\tCPU TIME\tMEMORY\tLIMIT\tPIDS\tNET I/O")
	for _, u := range all {
		limit := "-"
		if u.MemoryLimitBytes > 0 {
			limit = humanSize(int64(u.MemoryLimitBytes))
		}
		cpu := time.Duration(u.CPUSeconds * float64(time.Second)).Round(10 * time.Millisecond)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s / %s\n", u.Name, cpu, humanSize(int64(u.MemoryBytes)), limit, u.PIDs,
			humanSize(int64(u.RxBytes)), humanSize(int64(u.TxBytes)))
	}
}
