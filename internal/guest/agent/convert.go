// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"reflect"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// convert copies a message of the protocol to the part of the OCI runtime configuration
// that it carries. The protocol has the configuration's names, in other capitals, which
// do not count in [json.Unmarshal]. It has no "unset": JSON leaves out what is zero here,
// since zero means the default.
func convert(in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// toSpec converts the whole configuration, and what has another name, or another zero.
func toSpec(in *agent.Spec) (*oci.Spec, error) {
	out := &oci.Spec{Process: &oci.Process{}, Root: &oci.Root{}, Linux: &oci.Linux{}}
	if err := convert(in, out); err != nil {
		return nil, err
	}
	out.Version, out.Solaris, out.Windows = in.GetVersion(), nil, nil
	if out.Hooks != nil && reflect.ValueOf(*out.Hooks).IsZero() {
		out.Hooks = nil
	}
	if rdt := out.Linux.IntelRdt; rdt != nil && rdt.L3CacheSchema == "" {
		out.Linux.IntelRdt = nil
	}
	for i, call := range in.GetLinux().GetSeccomp().GetSyscalls() {
		if _, given := call.GetErrno().(*agent.LinuxSyscall_Errnoret); given {
			errno := uint(call.GetErrnoret())
			out.Linux.Seccomp.Syscalls[i].ErrnoRet = &errno
		}
	}
	var err error
	out.Linux.Resources, err = toResources(in.GetLinux().GetResources())
	return out, err
}

func toResources(in *agent.LinuxResources) (*oci.LinuxResources, error) {
	if in == nil {
		return nil, nil
	}
	out := &oci.LinuxResources{}
	if err := convert(in, out); err != nil {
		return nil, err
	}
	if in.GetPids().GetLimit() == 0 {
		out.Pids = nil
	}
	for i, rule := range in.GetDevices() {
		out.Devices[i] = toDeviceRule(rule)
	}
	return out, nil
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
