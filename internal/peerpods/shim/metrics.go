// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"strconv"

	"github.com/containerd/cgroups/v3/cgroup1/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// bare packs a message as containerd does: its type has no prefix.
func bare(m proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(m)
	return &anypb.Any{TypeUrl: string(proto.MessageName(m)), Value: value}, err
}

// metrics turns the agent's figures, which have the shape of cgroup v1
// whatever the guest has, into containerd's.
func metrics(in *agent.StatsContainerResponse) *stats.Metrics {
	cg := in.GetCgroupStats()
	out := &stats.Metrics{
		CPU: cpuMetrics(cg.GetCpuStats()), Memory: memoryMetrics(cg.GetMemoryStats()), Blkio: blkioMetrics(cg.GetBlkioStats()),
		Pids: &stats.PidsStat{Current: cg.GetPidsStats().GetCurrent(), Limit: cg.GetPidsStats().GetLimit()},
	}
	for size, h := range cg.GetHugetlbStats() {
		out.Hugetlb = append(out.Hugetlb, &stats.HugetlbStat{Pagesize: size, Usage: h.Usage, Max: h.MaxUsage, Failcnt: h.Failcnt})
	}
	for _, n := range in.GetNetworkStats() {
		out.Network = append(out.Network, &stats.NetworkStat{
			Name: n.Name, RxBytes: n.RxBytes, RxPackets: n.RxPackets, RxErrors: n.RxErrors, RxDropped: n.RxDropped,
			TxBytes: n.TxBytes, TxPackets: n.TxPackets, TxErrors: n.TxErrors, TxDropped: n.TxDropped,
		})
	}
	return out
}

func cpuMetrics(in *agent.CpuStats) *stats.CPUStat {
	use, throttle := in.GetCpuUsage(), in.GetThrottlingData()
	return &stats.CPUStat{
		Usage: &stats.CPUUsage{
			Total: use.GetTotalUsage(), Kernel: use.GetUsageInKernelmode(), User: use.GetUsageInUsermode(), PerCPU: use.GetPercpuUsage(),
		},
		Throttling: &stats.Throttle{
			Periods: throttle.GetPeriods(), ThrottledPeriods: throttle.GetThrottledPeriods(), ThrottledTime: throttle.GetThrottledTime(),
		},
	}
}

func memoryMetrics(in *agent.MemoryStats) *stats.MemoryStat {
	out := &stats.MemoryStat{
		Cache: in.GetCache(), Usage: memoryEntry(in.GetUsage()), Swap: memoryEntry(in.GetSwapUsage()), Kernel: memoryEntry(in.GetKernelUsage()),
	}
	// Consumers subtract the inactive part of the page cache from the usage.
	for name, field := range map[string]*uint64{
		"rss": &out.RSS, "rss_huge": &out.RSSHuge, "mapped_file": &out.MappedFile, "dirty": &out.Dirty, "writeback": &out.Writeback,
		"pgpgin": &out.PgPgIn, "pgpgout": &out.PgPgOut, "pgfault": &out.PgFault, "pgmajfault": &out.PgMajFault,
		"inactive_anon": &out.InactiveAnon, "active_anon": &out.ActiveAnon,
		"inactive_file": &out.InactiveFile, "active_file": &out.ActiveFile, "unevictable": &out.Unevictable,
		"hierarchical_memory_limit": &out.HierarchicalMemoryLimit, "hierarchical_memsw_limit": &out.HierarchicalSwapLimit,
		"total_cache": &out.TotalCache, "total_rss": &out.TotalRSS, "total_rss_huge": &out.TotalRSSHuge,
		"total_mapped_file": &out.TotalMappedFile, "total_dirty": &out.TotalDirty, "total_writeback": &out.TotalWriteback,
		"total_pgpgin": &out.TotalPgPgIn, "total_pgpgout": &out.TotalPgPgOut, "total_pgfault": &out.TotalPgFault,
		"total_pgmajfault": &out.TotalPgMajFault, "total_inactive_anon": &out.TotalInactiveAnon, "total_active_anon": &out.TotalActiveAnon,
		"total_inactive_file": &out.TotalInactiveFile, "total_active_file": &out.TotalActiveFile, "total_unevictable": &out.TotalUnevictable,
	} {
		*field = in.GetStats()[name]
	}
	return out
}

func memoryEntry(in *agent.MemoryData) *stats.MemoryEntry {
	return &stats.MemoryEntry{Limit: in.GetLimit(), Usage: in.GetUsage(), Max: in.GetMaxUsage(), Failcnt: in.GetFailcnt()}
}

func blkioMetrics(in *agent.BlkioStats) *stats.BlkIOStat {
	return &stats.BlkIOStat{
		IoServiceBytesRecursive: blkioEntries(in.GetIoServiceBytesRecursive()), IoServicedRecursive: blkioEntries(in.GetIoServicedRecursive()),
		IoQueuedRecursive: blkioEntries(in.GetIoQueuedRecursive()), IoServiceTimeRecursive: blkioEntries(in.GetIoServiceTimeRecursive()),
		IoWaitTimeRecursive: blkioEntries(in.GetIoWaitTimeRecursive()), IoMergedRecursive: blkioEntries(in.GetIoMergedRecursive()),
		IoTimeRecursive: blkioEntries(in.GetIoTimeRecursive()), SectorsRecursive: blkioEntries(in.GetSectorsRecursive()),
	}
}

func blkioEntries(in []*agent.BlkioStatsEntry) []*stats.BlkIOEntry {
	var out []*stats.BlkIOEntry
	for _, e := range in {
		device := strconv.FormatUint(e.Major, 10) + ":" + strconv.FormatUint(e.Minor, 10)
		out = append(out, &stats.BlkIOEntry{Op: e.Op, Device: device, Major: e.Major, Minor: e.Minor, Value: e.Value})
	}
	return out
}
