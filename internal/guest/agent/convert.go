// SPDX-License-Identifier: Apache-2.0

package agent

//lint:file-ignore SA1019 callers may still send what runtimes have deprecated

import (
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// The protocol carries the OCI runtime configuration with every field, but
// without "unset": a zero is left out here where zero means the default.

func toSpec(in *agent.Spec) *oci.Spec {
	return &oci.Spec{
		Version:     in.GetVersion(),
		Process:     toProcess(in.GetProcess()),
		Root:        &oci.Root{Path: in.GetRoot().GetPath(), Readonly: in.GetRoot().GetReadonly()},
		Hostname:    in.GetHostname(),
		Mounts:      each(in.GetMounts(), toMount),
		Hooks:       toHooks(in.GetHooks()),
		Annotations: in.GetAnnotations(),
		Linux:       toLinux(in.GetLinux()),
	}
}

// each converts a list; an empty one becomes nil.
func each[In, Out any](in []In, convert func(In) Out) []Out {
	var out []Out
	for _, item := range in {
		out = append(out, convert(item))
	}
	return out
}

// set returns nil for zero.
func set[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func toMount(in *agent.Mount) oci.Mount {
	return oci.Mount{Destination: in.GetDestination(), Source: in.GetSource(), Type: in.GetType(), Options: in.GetOptions()}
}

func toProcess(in *agent.Process) *oci.Process {
	out := &oci.Process{
		Terminal: in.GetTerminal(),
		User: oci.User{
			UID: in.GetUser().GetUID(), GID: in.GetUser().GetGID(),
			AdditionalGids: in.GetUser().GetAdditionalGids(), Username: in.GetUser().GetUsername(),
		},
		Args: in.GetArgs(), Env: in.GetEnv(), Cwd: in.GetCwd(),
		Rlimits:         each(in.GetRlimits(), toRlimit),
		NoNewPrivileges: in.GetNoNewPrivileges(), ApparmorProfile: in.GetApparmorProfile(),
		OOMScoreAdj: set(int(in.GetOOMScoreAdj())), SelinuxLabel: in.GetSelinuxLabel(),
	}
	if box := in.GetConsoleSize(); box != nil {
		out.ConsoleSize = &oci.Box{Height: uint(box.GetHeight()), Width: uint(box.GetWidth())}
	}
	if caps := in.GetCapabilities(); caps != nil {
		out.Capabilities = &oci.LinuxCapabilities{
			Bounding: caps.GetBounding(), Effective: caps.GetEffective(), Inheritable: caps.GetInheritable(),
			Permitted: caps.GetPermitted(), Ambient: caps.GetAmbient(),
		}
	}
	return out
}

func toRlimit(in *agent.POSIXRlimit) oci.POSIXRlimit {
	return oci.POSIXRlimit{Type: in.GetType(), Hard: in.GetHard(), Soft: in.GetSoft()}
}

func toHooks(in *agent.Hooks) *oci.Hooks {
	out := &oci.Hooks{
		Prestart:        each(in.GetPrestart(), toHook),
		Poststart:       each(in.GetPoststart(), toHook),
		Poststop:        each(in.GetPoststop(), toHook),
		CreateRuntime:   each(in.GetCreateRuntime(), toHook),
		CreateContainer: each(in.GetCreateContainer(), toHook),
		StartContainer:  each(in.GetStartContainer(), toHook),
	}
	for _, hooks := range [][]oci.Hook{out.Prestart, out.Poststart, out.Poststop, out.CreateRuntime, out.CreateContainer, out.StartContainer} {
		if len(hooks) > 0 {
			return out
		}
	}
	return nil
}

func toHook(in *agent.Hook) oci.Hook {
	return oci.Hook{Path: in.GetPath(), Args: in.GetArgs(), Env: in.GetEnv(), Timeout: set(int(in.GetTimeout()))}
}

func toLinux(in *agent.Linux) *oci.Linux {
	out := &oci.Linux{
		UIDMappings: each(in.GetUIDMappings(), toIDMapping), GIDMappings: each(in.GetGIDMappings(), toIDMapping),
		Sysctl: in.GetSysctl(), Resources: toResources(in.GetResources()), CgroupsPath: in.GetCgroupsPath(),
		Namespaces: each(in.GetNamespaces(), toNamespace), Devices: each(in.GetDevices(), toDevice),
		Seccomp: toSeccomp(in.GetSeccomp()), RootfsPropagation: in.GetRootfsPropagation(),
		MaskedPaths: in.GetMaskedPaths(), ReadonlyPaths: in.GetReadonlyPaths(), MountLabel: in.GetMountLabel(),
	}
	if schema := in.GetIntelRdt().GetL3CacheSchema(); schema != "" {
		out.IntelRdt = &oci.LinuxIntelRdt{L3CacheSchema: schema}
	}
	return out
}

func toIDMapping(in *agent.LinuxIDMapping) oci.LinuxIDMapping {
	return oci.LinuxIDMapping{HostID: in.GetHostID(), ContainerID: in.GetContainerID(), Size: in.GetSize()}
}

func toNamespace(in *agent.LinuxNamespace) oci.LinuxNamespace {
	return oci.LinuxNamespace{Type: oci.LinuxNamespaceType(in.GetType()), Path: in.GetPath()}
}

func toDevice(in *agent.LinuxDevice) oci.LinuxDevice {
	mode, uid, gid := os.FileMode(in.GetFileMode()), in.GetUID(), in.GetGID()
	return oci.LinuxDevice{
		Path: in.GetPath(), Type: in.GetType(), Major: in.GetMajor(), Minor: in.GetMinor(),
		FileMode: set(mode), UID: &uid, GID: &gid,
	}
}

func toResources(in *agent.LinuxResources) *oci.LinuxResources {
	if in == nil {
		return nil
	}
	out := &oci.LinuxResources{
		Devices: each(in.GetDevices(), toDeviceRule), Memory: toMemory(in.GetMemory()), CPU: toCPU(in.GetCPU()),
		BlockIO: toBlockIO(in.GetBlockIO()), HugepageLimits: each(in.GetHugepageLimits(), toHugepageLimit),
	}
	if limit := in.GetPids().GetLimit(); limit != 0 {
		out.Pids = &oci.LinuxPids{Limit: &limit}
	}
	if network := in.GetNetwork(); network != nil {
		out.Network = &oci.LinuxNetwork{ClassID: set(network.GetClassID()), Priorities: each(network.GetPriorities(), toPriority)}
	}
	return out
}

// toDeviceRule: both numbers zero mean every device, as does -1.
func toDeviceRule(in *agent.LinuxDeviceCgroup) oci.LinuxDeviceCgroup {
	out := oci.LinuxDeviceCgroup{Allow: in.GetAllow(), Type: in.GetType(), Access: in.GetAccess()}
	major, minor := in.GetMajor(), in.GetMinor()
	if major > 0 {
		out.Major = &major
		if minor >= 0 {
			out.Minor = &minor
		}
	}
	return out
}

func toMemory(in *agent.LinuxMemory) *oci.LinuxMemory {
	if in == nil {
		return nil
	}
	return &oci.LinuxMemory{
		Limit: set(in.GetLimit()), Reservation: set(in.GetReservation()), Swap: set(in.GetSwap()),
		Kernel:    set(in.GetKernel()),
		KernelTCP: set(in.GetKernelTCP()), Swappiness: set(in.GetSwappiness()), DisableOOMKiller: set(in.GetDisableOOMKiller()),
	}
}

func toCPU(in *agent.LinuxCPU) *oci.LinuxCPU {
	if in == nil {
		return nil
	}
	return &oci.LinuxCPU{
		Shares: set(in.GetShares()), Quota: set(in.GetQuota()), Period: set(in.GetPeriod()),
		RealtimeRuntime: set(in.GetRealtimeRuntime()), RealtimePeriod: set(in.GetRealtimePeriod()),
		Cpus: in.GetCpus(), Mems: in.GetMems(),
	}
}

func toBlockIO(in *agent.LinuxBlockIO) *oci.LinuxBlockIO {
	if in == nil {
		return nil
	}
	return &oci.LinuxBlockIO{
		Weight: set(uint16(in.GetWeight())), LeafWeight: set(uint16(in.GetLeafWeight())),
		WeightDevice:            each(in.GetWeightDevice(), toWeightDevice),
		ThrottleReadBpsDevice:   each(in.GetThrottleReadBpsDevice(), toThrottleDevice),
		ThrottleWriteBpsDevice:  each(in.GetThrottleWriteBpsDevice(), toThrottleDevice),
		ThrottleReadIOPSDevice:  each(in.GetThrottleReadIOPSDevice(), toThrottleDevice),
		ThrottleWriteIOPSDevice: each(in.GetThrottleWriteIOPSDevice(), toThrottleDevice),
	}
}

func toWeightDevice(in *agent.LinuxWeightDevice) oci.LinuxWeightDevice {
	out := oci.LinuxWeightDevice{Weight: set(uint16(in.GetWeight())), LeafWeight: set(uint16(in.GetLeafWeight()))}
	out.Major, out.Minor = in.GetMajor(), in.GetMinor()
	return out
}

func toThrottleDevice(in *agent.LinuxThrottleDevice) oci.LinuxThrottleDevice {
	out := oci.LinuxThrottleDevice{Rate: in.GetRate()}
	out.Major, out.Minor = in.GetMajor(), in.GetMinor()
	return out
}

func toHugepageLimit(in *agent.LinuxHugepageLimit) oci.LinuxHugepageLimit {
	return oci.LinuxHugepageLimit{Pagesize: in.GetPagesize(), Limit: in.GetLimit()}
}

func toPriority(in *agent.LinuxInterfacePriority) oci.LinuxInterfacePriority {
	return oci.LinuxInterfacePriority{Name: in.GetName(), Priority: in.GetPriority()}
}

func toSeccomp(in *agent.LinuxSeccomp) *oci.LinuxSeccomp {
	if in == nil {
		return nil
	}
	return &oci.LinuxSeccomp{
		DefaultAction: oci.LinuxSeccompAction(in.GetDefaultAction()),
		Architectures: each(in.GetArchitectures(), func(s string) oci.Arch { return oci.Arch(s) }),
		Flags:         each(in.GetFlags(), func(s string) oci.LinuxSeccompFlag { return oci.LinuxSeccompFlag(s) }),
		Syscalls:      each(in.GetSyscalls(), toSyscall),
	}
}

func toSyscall(in *agent.LinuxSyscall) oci.LinuxSyscall {
	out := oci.LinuxSyscall{Names: in.GetNames(), Action: oci.LinuxSeccompAction(in.GetAction()), Args: each(in.GetArgs(), toSeccompArg)}
	if _, given := in.GetErrno().(*agent.LinuxSyscall_Errnoret); given {
		errno := uint(in.GetErrnoret())
		out.ErrnoRet = &errno
	}
	return out
}

func toSeccompArg(in *agent.LinuxSeccompArg) oci.LinuxSeccompArg {
	return oci.LinuxSeccompArg{Index: uint(in.GetIndex()), Value: in.GetValue(), ValueTwo: in.GetValueTwo(), Op: oci.LinuxSeccompOperator(in.GetOp())}
}
