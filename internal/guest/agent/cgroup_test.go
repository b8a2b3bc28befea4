// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"google.golang.org/protobuf/testing/protocmp"
)

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStatsOfCgroupV2(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "kubepods/c")
	writeFiles(t, dir, map[string]string{
		"cpu.stat":            "usage_usec 300\nuser_usec 200\nsystem_usec 100\nnr_periods 5\nnr_throttled 2\nthrottled_usec 7\n",
		"memory.current":      "4096\n",
		"memory.peak":         "8192\n",
		"memory.max":          "max\n",
		"memory.swap.current": "1\n",
		"memory.swap.max":     "max\n",
		"memory.events":       "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
		"memory.stat":         "anon 100\nfile 50\nkernel 25\ninactive_file 10\n",
		"pids.current":        "2\n",
		"pids.max":            "max\n",
		"io.stat":             "253:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n",
		"hugetlb.2MB.current": "5\n",
		"hugetlb.2MB.max":     "max\n",
	})
	writeFiles(t, top, map[string]string{"kubepods/memory.max": "1048576\n"})
	got := statsV2(dir)
	stats := got.MemoryStats.Stats
	for key, want := range map[string]uint64{"total_inactive_file": 10, "rss": 100, "total_rss": 100, "cache": 50, "inactive_file": 10} {
		if stats[key] != want {
			t.Errorf("memory stat %s is %d, want %d", key, stats[key], want)
		}
	}
	got.MemoryStats.Stats = nil
	want := &agent.CgroupStats{
		CpuStats: &agent.CpuStats{
			CpuUsage:       &agent.CpuUsage{TotalUsage: 300_000, UsageInUsermode: 200_000, UsageInKernelmode: 100_000},
			ThrottlingData: &agent.ThrottlingData{Periods: 5, ThrottledPeriods: 2, ThrottledTime: 7000},
		},
		MemoryStats: &agent.MemoryStats{
			Cache: 50, Usage: &agent.MemoryData{Usage: 4096, MaxUsage: 8192, Failcnt: 3, Limit: 1 << 20},
			SwapUsage: &agent.MemoryData{Usage: 1}, KernelUsage: &agent.MemoryData{Usage: 25}, UseHierarchy: true,
		},
		PidsStats: &agent.PidsStats{Current: 2},
		BlkioStats: &agent.BlkioStats{
			IoServiceBytesRecursive: []*agent.BlkioStatsEntry{{Major: 253, Op: "Read", Value: 10}, {Major: 253, Op: "Write", Value: 20}},
			IoServicedRecursive:     []*agent.BlkioStatsEntry{{Major: 253, Op: "Read", Value: 1}, {Major: 253, Op: "Write", Value: 2}},
		},
		HugetlbStats: map[string]*agent.HugetlbStats{"2MB": {Usage: 5}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCgroupIsNeverTheAgentsOwn guards against killing the machine with the
// container.
func TestCgroupIsNeverTheAgentsOwn(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"self":     "1:memory:/agent\n0::/agent/sub\n",
		"top":      "1:memory:/\n0::/\n",
		"same":     "1:memory:/agent\n0::/agent/sub\n",
		"above":    "1:memory:/agent\n0::/agent\n",
		"sibling":  "2:cpu,cpuacct:/agents/c\n1:memory:/agents/c\n0::/agents/c\n",
		"below":    "1:memory:/agent/c\n0::/agent/sub/c\n",
		"nonsense": "garbage\n",
	})
	find := func(name string, unified bool) cgroup {
		return cgroupFrom(filepath.Join(dir, name), filepath.Join(dir, "self"), "/cg", unified)
	}
	for _, name := range []string{"top", "same", "above", "nonsense", "missing"} {
		for _, unified := range []bool{true, false} {
			if c := find(name, unified); c.unified != "" || len(c.v1) != 0 {
				t.Errorf("%s (v2 %v): %+v", name, unified, c)
			}
		}
	}
	if c := find("sibling", true); c.unified != "/cg/agents/c" {
		t.Errorf("v2: %+v", c)
	}
	want := map[string]string{"cpu": "/cg/cpu/agents/c", "cpuacct": "/cg/cpuacct/agents/c", "memory": "/cg/memory/agents/c"}
	if diff := cmp.Diff(want, find("sibling", false).v1); diff != "" {
		t.Errorf("v1: %s", diff)
	}
	if c := find("below", false); c.v1["memory"] != "/cg/memory/agent/c" {
		t.Errorf("below: %+v", c)
	}
}
