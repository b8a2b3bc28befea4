// SPDX-License-Identifier: Apache-2.0

// Package guestspec turns OCI specs of a node into those that the agent in a
// pod VM gets: nothing in them names what only the node has.
package guestspec

import (
	"maps"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// Options are what the OCI spec does not say.
type Options struct {
	// Rootfs is the root file system's path in the guest.
	Rootfs string
	// Mounts replace those of the spec.
	Mounts []*agent.Mount
	// Annotations are added to those of the spec.
	Annotations map[string]string
	// NoSeccomp leaves out the seccomp profile.
	NoSeccomp bool
}

// Convert returns the guest's spec. Hooks, host namespaces, the hostname
// (which is the sandbox's) and limits other than memory and CPU stay behind.
func Convert(in *oci.Spec, o Options) *agent.Spec {
	out := &agent.Spec{
		Version: in.Version, Process: Process(in.Process), Mounts: o.Mounts,
		Root: &agent.Root{Path: o.Rootfs}, Annotations: map[string]string{},
	}
	if in.Root != nil {
		out.Root.Readonly = in.Root.Readonly
	}
	maps.Copy(out.Annotations, in.Annotations)
	maps.Copy(out.Annotations, o.Annotations)
	out.Linux = linux(in.Linux, o)
	return out
}

// Process converts the process of a container or an exec; nil stays nil.
func Process(in *oci.Process) *agent.Process {
	if in == nil {
		return nil
	}
	out := &agent.Process{
		Terminal: in.Terminal, Args: in.Args, Env: in.Env, Cwd: in.Cwd,
		Capabilities: capabilities(in.Capabilities), NoNewPrivileges: in.NoNewPrivileges,
		User: &agent.User{UID: in.User.UID, GID: in.User.GID, AdditionalGids: in.User.AdditionalGids, Username: in.User.Username},
		Rlimits: each(in.Rlimits, func(l oci.POSIXRlimit) *agent.POSIXRlimit {
			return &agent.POSIXRlimit{Type: l.Type, Hard: l.Hard, Soft: l.Soft}
		}),
	}
	if in.ConsoleSize != nil {
		out.ConsoleSize = &agent.Box{Height: uint32(in.ConsoleSize.Height), Width: uint32(in.ConsoleSize.Width)}
	}
	// AppArmor and SELinux labels are the node's: the guest has other policies.
	if in.OOMScoreAdj != nil {
		out.OOMScoreAdj = int64(*in.OOMScoreAdj)
	}
	return out
}

func each[In, Out any](in []In, convert func(In) Out) []Out {
	var out []Out
	for _, v := range in {
		out = append(out, convert(v))
	}
	return out
}

func capabilities(in *oci.LinuxCapabilities) *agent.LinuxCapabilities {
	if in == nil {
		return nil
	}
	return &agent.LinuxCapabilities{
		Bounding: in.Bounding, Effective: in.Effective, Inheritable: in.Inheritable,
		Permitted: in.Permitted, Ambient: in.Ambient,
	}
}

func linux(in *oci.Linux, o Options) *agent.Linux {
	if in == nil {
		in = &oci.Linux{}
	}
	out := &agent.Linux{
		Sysctl: in.Sysctl, CgroupsPath: in.CgroupsPath, Resources: Resources(in.Resources),
		RootfsPropagation: in.RootfsPropagation, MaskedPaths: in.MaskedPaths, ReadonlyPaths: in.ReadonlyPaths,
		// The guest makes and shares the namespaces; it adds the pod's network.
		Namespaces: []*agent.LinuxNamespace{{Type: "ipc"}, {Type: "uts"}, {Type: "mount"}},
	}
	if !o.NoSeccomp {
		out.Seccomp = seccomp(in.Seccomp)
	}
	return out
}

// Resources keeps memory and CPU time. Sets of CPUs and memory nodes, devices
// and block I/O are those of the node.
func Resources(in *oci.LinuxResources) *agent.LinuxResources {
	out := &agent.LinuxResources{}
	if in == nil {
		return out
	}
	if m := in.Memory; m != nil {
		out.Memory = &agent.LinuxMemory{
			Limit: value(m.Limit), Reservation: value(m.Reservation), Swap: value(m.Swap),
			Swappiness: value(m.Swappiness), DisableOOMKiller: value(m.DisableOOMKiller),
		}
	}
	if c := in.CPU; c != nil {
		out.CPU = &agent.LinuxCPU{
			Shares: value(c.Shares), Quota: value(c.Quota), Period: value(c.Period),
			RealtimeRuntime: value(c.RealtimeRuntime), RealtimePeriod: value(c.RealtimePeriod),
		}
	}
	return out
}

// Limit gives a container the limits that the webhook took out of its pod: the VM as a
// whole enforces them, but not between its containers. Limits that the spec has win.
func Limit(spec *agent.Spec, limits guestlimits.Limits) {
	if spec.Linux == nil {
		spec.Linux = &agent.Linux{}
	}
	if spec.Linux.Resources == nil {
		spec.Linux.Resources = &agent.LinuxResources{}
	}
	res := spec.Linux.Resources
	if limits.MemoryBytes > 0 && res.Memory.GetLimit() <= 0 {
		if res.Memory == nil {
			res.Memory = &agent.LinuxMemory{}
		}
		res.Memory.Limit, res.Memory.Swap = limits.MemoryBytes, limits.MemoryBytes
	}
	if res.CPU == nil {
		res.CPU = &agent.LinuxCPU{}
	}
	// The kubelet gives 2 shares to a container without a request.
	if limits.CPUShares > 0 && res.CPU.Shares <= 2 {
		res.CPU.Shares = limits.CPUShares
	}
	if limits.CPUQuota > 0 && res.CPU.Quota <= 0 {
		res.CPU.Quota, res.CPU.Period = limits.CPUQuota, limits.CPUPeriod
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// seccomp of a nil profile is nil: unconfined.
func seccomp(in *oci.LinuxSeccomp) *agent.LinuxSeccomp {
	if in == nil {
		return nil
	}
	return &agent.LinuxSeccomp{
		DefaultAction: string(in.DefaultAction),
		Architectures: each(in.Architectures, func(a oci.Arch) string { return string(a) }),
		Flags:         each(in.Flags, func(f oci.LinuxSeccompFlag) string { return string(f) }),
		Syscalls:      each(in.Syscalls, syscalls),
	}
}

func syscalls(in oci.LinuxSyscall) *agent.LinuxSyscall {
	out := &agent.LinuxSyscall{Names: in.Names, Action: string(in.Action), Args: each(in.Args, argument)}
	if in.ErrnoRet != nil {
		out.Errno = &agent.LinuxSyscall_Errnoret{Errnoret: uint32(*in.ErrnoRet)}
	}
	return out
}

func argument(in oci.LinuxSeccompArg) *agent.LinuxSeccompArg {
	return &agent.LinuxSeccompArg{Index: uint64(in.Index), Value: in.Value, ValueTwo: in.ValueTwo, Op: string(in.Op)}
}
