// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"fmt"
	"testing"
	"time"
)

// spent is what something has taken.
type spent struct {
	wall time.Duration
	// cpu is the manager's with its plugins, all that of the machines too.
	cpu, all time.Duration
	writes   int
	// reconciles are those of machines, of clusters, and of all there are.
	machines, clusters, total int
	calls                     int
}

func (f *fleet) spend(t *testing.T, do func()) spent {
	before, began := f.now(t), time.Now()
	do()
	s := f.now(t)
	s.wall = time.Since(began)
	s.cpu -= before.cpu
	s.all -= before.all
	s.writes -= before.writes
	s.machines -= before.machines
	s.clusters -= before.clusters
	s.total -= before.total
	s.calls -= before.calls
	return s
}

// now is what the manager has taken since it started.
func (f *fleet) now(t *testing.T) spent {
	s := spent{
		writes: f.manager.Writes(t), machines: f.manager.Reconciles(t, f.machine), clusters: f.manager.Reconciles(t, f.cluster),
		total: int(f.manager.Sum(t, "controller_runtime_reconcile_total")),
		calls: int(f.manager.Sum(t, "capi_manager_provider_call_seconds_count")),
	}
	for _, pid := range f.processes() {
		s.cpu += cpu(t, pid)
	}
	if s.all = s.cpu; f.cloud != nil {
		s.all += cpu(t, f.cloud.Machines.Pid)
	}
	return s
}

// processes are the manager and its plugins.
func (f *fleet) processes() []int {
	return append([]int{f.manager.Pid}, children(f.manager.Pid)...)
}

// rss returns the memory of the manager alone, and of it, its plugins and the
// machines.
func (f *fleet) rss(t *testing.T) (own, all int64) {
	for _, pid := range f.processes() {
		all += rss(t, pid)
	}
	if f.cloud != nil {
		all += rss(t, f.cloud.Machines.Pid)
	}
	return rss(t, f.manager.Pid), all
}

// compare returns the lines of the table.
func compare(ours, peer *lives) [][]string {
	machines := float64(*machineClusters * (controlPlanes + workers))
	clusters := float64(*machineClusters)
	line := func(what, format string, our, their float64) []string {
		ratio := "–"
		if their != 0 {
			ratio = fmt.Sprintf("× %.2f", our/their)
		}
		return []string{what, fmt.Sprintf(format, our), fmt.Sprintf(format, their), ratio}
	}
	life := func(what, format string, of func(*lives) float64) []string {
		return line(what, format, of(ours), of(peer))
	}
	seconds := func(what string, of func(*lives) time.Duration) []string {
		return life(what, "%.1f s", func(l *lives) float64 { return of(l).Seconds() })
	}
	lines := [][]string{
		seconds("from apply to all machines Running", func(l *lives) time.Duration { return l.create.wall }),
		life("API writes for each machine, its share of its cluster's included", "%.1f", func(l *lives) float64 { return float64(l.create.writes) / machines }),
		life("reconciles of a machine until it runs", "%.1f", func(l *lives) float64 { return float64(l.create.machines) / machines }),
		life("reconciles of a cluster meanwhile", "%.1f", func(l *lives) float64 { return float64(l.create.clusters) / clusters }),
		life("reconciles of everything, for each machine", "%.1f", func(l *lives) float64 { return float64(l.create.total) / machines }),
		seconds("processor time of the manager and its plugins", func(l *lives) time.Duration { return l.create.cpu }),
		seconds("the same with the machines' API servers", func(l *lives) time.Duration { return l.create.all }),
		life("manager, resident", "%.0f MiB", func(l *lives) float64 { return float64(l.rss) / (1 << 20) }),
		life("the same with plugins and the machines' API servers", "%.0f MiB", func(l *lives) float64 { return float64(l.rssAll) / (1 << 20) }),
		life(fmt.Sprintf("API writes in %s with nothing to do", *machineIdle), "%.0f", func(l *lives) float64 { return float64(l.idle.writes) }),
		life("reconciles meanwhile", "%.0f", func(l *lives) float64 { return float64(l.idle.total) }),
		seconds("processor time meanwhile", func(l *lives) time.Duration { return l.idle.cpu }),
		seconds("deletion of all clusters", func(l *lives) time.Duration { return l.delete.wall }),
		life("API writes of it for each machine", "%.1f", func(l *lives) float64 { return float64(l.delete.writes) / machines }),
		life("machines not provisioned when the manager was killed", "%.0f", func(l *lives) float64 { return float64(l.inFlight) }),
		seconds("from then to all machines Running", func(l *lives) time.Duration { return l.recovery }),
	}
	return append(lines,
		[]string{"calls of the provider for each machine", fmt.Sprintf("%.1f", float64(ours.create.calls)/machines), "–", "–"},
		[]string{"instances made twice", fmt.Sprint(ours.twice), "–", "–"},
		[]string{"instances of Machines beyond those that were wanted", fmt.Sprint(ours.more - ours.twice), "–", "–"})
}
