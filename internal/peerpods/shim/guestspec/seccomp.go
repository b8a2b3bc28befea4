// SPDX-License-Identifier: Apache-2.0

package guestspec

import (
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

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
