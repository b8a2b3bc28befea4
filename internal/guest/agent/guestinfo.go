// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// memBlock is the unit of memory hotplug that callers round to: x86's for
// VMs below 64 GiB (Documentation/admin-guide/mm/memory-hotplug.rst).
const memBlock = 128 << 20

// progressWait bounds one PullProgress call.
const progressWait = time.Second

// Check says that the agent answers.
func (a *Agent) Check(context.Context, *agent.CheckRequest) (*agent.HealthCheckResponse, error) {
	return &agent.HealthCheckResponse{Status: agent.HealthCheckResponse_SERVING}, nil
}

// Version returns the agent's version and that of the protocol.
func (a *Agent) Version(context.Context, *agent.CheckRequest) (*agent.VersionCheckResponse, error) {
	return &agent.VersionCheckResponse{GrpcVersion: "0.0.1", AgentVersion: a.cfg.Version}, nil
}

// GetGuestDetails returns what the agent can do.
func (a *Agent) GetGuestDetails(context.Context, *agent.GuestDetailsRequest) (*agent.GuestDetailsResponse, error) {
	// Debian's runtimes have seccomp built in.
	_, noSeccomp := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	return &agent.GuestDetailsResponse{
		MemBlockSizeBytes: memBlock,
		AgentDetails: &agent.AgentDetails{
			Version: a.cfg.Version, StorageHandlers: storageHandlers, SupportsSeccomp: noSeccomp == nil,
		},
	}, nil
}

// PullProgress returns how far a container's image is.
func (a *Agent) PullProgress(ctx context.Context, req *guest.PullProgressRequest) (*guest.PullProgressResponse, error) {
	a.mu.Lock()
	c := a.containers[req.GetContainerId()]
	a.mu.Unlock()
	var progress *pull.Progress
	if c != nil {
		progress = c.pull.Load()
	}
	if progress == nil {
		return &guest.PullProgressResponse{Finished: true}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	s := progress.Wait(ctx, req.GetSeenBytes())
	return &guest.PullProgressResponse{DoneBytes: s.Done, TotalBytes: s.Total, Finished: s.Finished}, nil
}

// Timeline returns what took time in this guest since its start.
func (a *Agent) Timeline(context.Context, *guest.TimelineRequest) (*guest.TimelineResponse, error) {
	steps := a.cfg.Marks.Read()
	return &guest.TimelineResponse{Steps: steps, NowNano: int64(marks.Uptime())}, nil
}

// GetMetrics returns Prometheus text.
func (a *Agent) GetMetrics(context.Context, *agent.GetMetricsRequest) (*agent.Metrics, error) {
	a.mu.Lock()
	containers := len(a.containers)
	a.mu.Unlock()
	self := statsOfProcess(os.Getpid())
	var out strings.Builder
	metric := func(name, help string, value uint64) {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s gauge\n%s %d\n", name, help, name, name, value)
	}
	metric("podvm_agent_containers", "Containers of the sandbox.", uint64(containers))
	metric("podvm_agent_goroutines", "Goroutines of the agent.", uint64(runtime.NumGoroutine()))
	metric("podvm_agent_resident_memory_bytes", "Resident memory of the agent.", self.MemoryStats.Usage.Usage)
	metric("podvm_agent_cpu_nanoseconds", "CPU time of the agent.", self.CpuStats.CpuUsage.TotalUsage)
	metric("podvm_memory_bytes", "Memory of the VM.", memTotal())
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		metric("podvm_memory_free_bytes", "Unused memory of the VM.", info.Freeram*uint64(info.Unit))
		metric("podvm_processes", "Processes in the VM.", uint64(info.Procs))
		metric("podvm_uptime_seconds", "Time since the VM booted.", uint64(info.Uptime))
	}
	return &agent.Metrics{Metrics: out.String()}, nil
}

// GetVolumeStats returns how full the file system at a path is.
func (a *Agent) GetVolumeStats(_ context.Context, req *agent.VolumeStatsRequest) (*agent.VolumeStatsResponse, error) {
	var st unix.Statfs_t
	path := a.local(req.GetVolumeGuestPath())
	if err := unix.Statfs(path, &st); err != nil {
		return nil, status.Errorf(codes.NotFound, "volume %s: %v", req.GetVolumeGuestPath(), err)
	}
	block := uint64(st.Bsize)
	return &agent.VolumeStatsResponse{
		Usage: []*agent.VolumeUsage{
			{Unit: agent.VolumeUsage_BYTES, Total: st.Blocks * block, Available: st.Bavail * block, Used: (st.Blocks - st.Bfree) * block},
			{Unit: agent.VolumeUsage_INODES, Total: st.Files, Available: st.Ffree, Used: st.Files - st.Ffree},
		},
		VolumeCondition: &agent.VolumeCondition{},
	}, nil
}

// UpdateEphemeralMounts gives memory volumes new sizes.
func (a *Agent) UpdateEphemeralMounts(_ context.Context, req *agent.UpdateEphemeralMountsRequest) (*emptypb.Empty, error) {
	for _, s := range req.GetStorages() {
		if s.GetDriver() != driverEphemeral || cmp.Or(s.GetFstype(), "tmpfs") != "tmpfs" {
			return nil, status.Errorf(codes.InvalidArgument, "storage %s (%s) at %s: only tmpfs can be updated", s.GetDriver(), s.GetFstype(), s.GetMountPoint())
		}
		flags, data := mountOptions(s.GetOptions())
		if err := unix.Mount("", a.local(s.GetMountPoint()), "tmpfs", flags|unix.MS_REMOUNT, data); err != nil {
			return nil, status.Errorf(codes.Internal, "remount %s with %q: %v", s.GetMountPoint(), data, err)
		}
	}
	return &emptypb.Empty{}, nil
}

// RemoveStaleVirtiofsShareMounts has nothing to do: nothing is shared with the
// node.
func (a *Agent) RemoveStaleVirtiofsShareMounts(context.Context, *agent.RemoveStaleVirtiofsShareMountsRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// ResizeVolume is not implemented: the VM's volumes belong to its provider.
func (a *Agent) ResizeVolume(context.Context, *agent.ResizeVolumeRequest) (*emptypb.Empty, error) {
	return nil, status.Error(codes.Unimplemented, "volumes cannot be resized in this VM")
}

// GetIPTables is not implemented: the image has no iptables.
func (a *Agent) GetIPTables(context.Context, *agent.GetIPTablesRequest) (*agent.GetIPTablesResponse, error) {
	return nil, status.Error(codes.Unimplemented, "this VM has no iptables")
}

// SetIPTables is not implemented: the image has no iptables.
func (a *Agent) SetIPTables(context.Context, *agent.SetIPTablesRequest) (*agent.SetIPTablesResponse, error) {
	return nil, status.Error(codes.Unimplemented, "this VM has no iptables")
}
