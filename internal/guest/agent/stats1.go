// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

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
