// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
)

// StatsContainer returns what a container uses, in the shape of cgroup v1
// whichever the VM has.
func (a *Agent) StatsContainer(_ context.Context, req *agent.StatsContainerRequest) (*agent.StatsContainerResponse, error) {
	c, err := a.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	stats := statsV1(c.cgroup)
	switch {
	case c.pause:
		stats = statsOfProcess(c.init.child.PID)
	case c.cgroup.unified != "":
		stats = statsV2(c.cgroup.unified)
	}
	// Zero would be taken for a real limit: consumers subtract usage from it.
	memory := stats.MemoryStats.Usage
	if total := memTotal(); memory.Limit == 0 || memory.Limit > total {
		memory.Limit = total
	}
	return &agent.StatsContainerResponse{CgroupStats: stats, NetworkStats: a.networkStats()}, nil
}

func statsV2(dir string) *agent.CgroupStats {
	cpu, memory := readTable(filepath.Join(dir, "cpu.stat")), readTable(filepath.Join(dir, "memory.stat"))
	return &agent.CgroupStats{
		CpuStats: &agent.CpuStats{
			CpuUsage: &agent.CpuUsage{
				TotalUsage: cpu["usage_usec"] * 1000, UsageInUsermode: cpu["user_usec"] * 1000, UsageInKernelmode: cpu["system_usec"] * 1000,
			},
			ThrottlingData: &agent.ThrottlingData{
				Periods: cpu["nr_periods"], ThrottledPeriods: cpu["nr_throttled"], ThrottledTime: cpu["throttled_usec"] * 1000,
			},
		},
		MemoryStats: &agent.MemoryStats{
			Cache: memory["file"],
			Usage: &agent.MemoryData{
				Usage: readUint(filepath.Join(dir, "memory.current")), MaxUsage: readUint(filepath.Join(dir, "memory.peak")),
				Failcnt: readTable(filepath.Join(dir, "memory.events"))["max"], Limit: lowestLimit(dir),
			},
			SwapUsage: &agent.MemoryData{
				Usage: readUint(filepath.Join(dir, "memory.swap.current")), Limit: readUint(filepath.Join(dir, "memory.swap.max")),
			},
			KernelUsage:  &agent.MemoryData{Usage: memory["kernel"]},
			UseHierarchy: true, Stats: memoryStatV1(memory),
		},
		PidsStats:    &agent.PidsStats{Current: readUint(filepath.Join(dir, "pids.current")), Limit: readUint(filepath.Join(dir, "pids.max"))},
		BlkioStats:   ioStatV2(filepath.Join(dir, "io.stat")),
		HugetlbStats: hugetlbStats(dir, ".current", ".max"),
	}
}

// lowestLimit returns the smallest memory.max of a cgroup and its parents, which is
// the one that the kernel applies; 0 means none.
func lowestLimit(dir string) uint64 {
	var lowest uint64
	for ; dir != cgroupRoot && dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if limit := readUint(filepath.Join(dir, "memory.max")); limit != 0 && (lowest == 0 || limit < lowest) {
			lowest = limit
		}
	}
	return lowest
}

// memoryStatV1 adds v1's names, which readers of these statistics look for,
// to v2's.
func memoryStatV1(v2 map[string]uint64) map[string]uint64 {
	out := maps.Clone(v2)
	for v1, name := range map[string]string{
		"cache": "file", "rss": "anon", "rss_huge": "anon_thp", "mapped_file": "file_mapped", "dirty": "file_dirty",
		"writeback": "file_writeback", "pgfault": "pgfault", "pgmajfault": "pgmajfault", "inactive_file": "inactive_file",
		"active_file": "active_file", "inactive_anon": "inactive_anon", "active_anon": "active_anon", "unevictable": "unevictable",
	} {
		// A v2 cgroup counts what is below it, as v1's total_ figures do.
		out[v1], out["total_"+v1] = v2[name], v2[name]
	}
	return out
}

func ioStatV2(file string) *agent.BlkioStats {
	out := &agent.BlkioStats{}
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		var major, minor uint64
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if n, _ := fmt.Sscanf(fields[0], "%d:%d", &major, &minor); n != 2 {
			continue
		}
		for _, field := range fields[1:] {
			name, text, _ := strings.Cut(field, "=")
			value, _ := strconv.ParseUint(text, 10, 64)
			entry := &agent.BlkioStatsEntry{Major: major, Minor: minor, Value: value, Op: "Read"}
			if strings.HasPrefix(name, "w") {
				entry.Op = "Write"
			}
			switch name {
			case "rbytes", "wbytes":
				out.IoServiceBytesRecursive = append(out.IoServiceBytesRecursive, entry)
			case "rios", "wios":
				out.IoServicedRecursive = append(out.IoServicedRecursive, entry)
			}
		}
	}
	return out
}

// hugetlbStats reads hugetlb.<size>.* of either version.
func hugetlbStats(dir, usage, limit string) map[string]*agent.HugetlbStats {
	out := make(map[string]*agent.HugetlbStats)
	files, _ := filepath.Glob(filepath.Join(dir, "hugetlb.*"+limit))
	for _, file := range files {
		prefix := strings.TrimSuffix(file, limit)
		size := strings.TrimPrefix(filepath.Base(prefix), "hugetlb.")
		if strings.Contains(size, ".") {
			continue // reservations
		}
		out[size] = &agent.HugetlbStats{Usage: readUint(prefix + usage)}
	}
	return out
}

// statsOfProcess returns statistics of the pause process, which has no cgroup.
func statsOfProcess(pid int) *agent.CgroupStats {
	stats := statsV1(cgroup{})
	if fields := processStat(pid); len(fields) > 21 {
		// utime, stime and rss are fields 14, 15 and 24.
		user, _ := strconv.ParseUint(fields[11], 10, 64)
		system, _ := strconv.ParseUint(fields[12], 10, 64)
		resident, _ := strconv.ParseUint(fields[21], 10, 64)
		usage := stats.CpuStats.CpuUsage
		usage.UsageInUsermode, usage.UsageInKernelmode = user*tick, system*tick
		usage.TotalUsage = usage.UsageInUsermode + usage.UsageInKernelmode
		stats.MemoryStats.Usage.Usage = resident * uint64(os.Getpagesize())
		stats.PidsStats.Current = 1
	}
	return stats
}

// memTotal returns the VM's memory in bytes.
func memTotal() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}

// tick is the unit of CPU times in /proc and cpuacct.stat in nanoseconds:
// USER_HZ is 100 on every architecture that matters (time(7)).
const tick = 10_000_000

func statsV1(c cgroup) *agent.CgroupStats {
	pids := c.v1["pids"]
	return &agent.CgroupStats{
		CpuStats:    cpuStatsV1(c),
		MemoryStats: memoryStatsV1(c.v1["memory"]),
		PidsStats:   &agent.PidsStats{Current: readUint(filepath.Join(pids, "pids.current")), Limit: readUint(filepath.Join(pids, "pids.max"))},
		BlkioStats: &agent.BlkioStats{
			IoServiceBytesRecursive: ioStatV1(filepath.Join(c.v1["blkio"], "blkio.throttle.io_service_bytes_recursive")),
			IoServicedRecursive:     ioStatV1(filepath.Join(c.v1["blkio"], "blkio.throttle.io_serviced_recursive")),
		},
		HugetlbStats: hugetlbStats(c.v1["hugetlb"], ".usage_in_bytes", ".limit_in_bytes"),
	}
}

func cpuStatsV1(c cgroup) *agent.CpuStats {
	acct := c.v1["cpuacct"]
	split, throttled := readTable(filepath.Join(acct, "cpuacct.stat")), readTable(filepath.Join(c.v1["cpu"], "cpu.stat"))
	usage := &agent.CpuUsage{
		TotalUsage:      readUint(filepath.Join(acct, "cpuacct.usage")),
		UsageInUsermode: split["user"] * tick, UsageInKernelmode: split["system"] * tick,
	}
	percpu, _ := os.ReadFile(filepath.Join(acct, "cpuacct.usage_percpu"))
	for field := range strings.FieldsSeq(string(percpu)) {
		n, _ := strconv.ParseUint(field, 10, 64)
		usage.PercpuUsage = append(usage.PercpuUsage, n)
	}
	return &agent.CpuStats{CpuUsage: usage, ThrottlingData: &agent.ThrottlingData{
		Periods: throttled["nr_periods"], ThrottledPeriods: throttled["nr_throttled"], ThrottledTime: throttled["throttled_time"],
	}}
}

func memoryStatsV1(dir string) *agent.MemoryStats {
	stat := readTable(filepath.Join(dir, "memory.stat"))
	usage := memoryDataV1(dir, "memory.")
	if limit := stat["hierarchical_memory_limit"]; limit != 0 {
		usage.Limit = limit
	}
	return &agent.MemoryStats{
		Cache: stat["cache"], Usage: usage, SwapUsage: memoryDataV1(dir, "memory.memsw."), KernelUsage: memoryDataV1(dir, "memory.kmem."),
		UseHierarchy: readUint(filepath.Join(dir, "memory.use_hierarchy")) == 1, Stats: stat,
	}
}

func memoryDataV1(dir, prefix string) *agent.MemoryData {
	read := func(name string) uint64 { return readUint(filepath.Join(dir, prefix+name)) }
	return &agent.MemoryData{
		Usage: read("usage_in_bytes"), MaxUsage: read("max_usage_in_bytes"), Failcnt: read("failcnt"), Limit: read("limit_in_bytes"),
	}
}

func ioStatV1(file string) []*agent.BlkioStatsEntry {
	var out []*agent.BlkioStatsEntry
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		entry := &agent.BlkioStatsEntry{}
		if n, _ := fmt.Sscanf(line, "%d:%d %s %d", &entry.Major, &entry.Minor, &entry.Op, &entry.Value); n == 4 {
			out = append(out, entry)
		}
	}
	return out
}
