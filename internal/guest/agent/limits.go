// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// limits is what the agent itself may do. In a VM that is everything; on a
// machine that withholds a capability even from root, what needs it is left
// out of containers, since runtimes would refuse them as a whole.
type limits struct{ bounding uint64 }

func ownLimits() limits {
	var own limits
	for capability := range capabilities {
		if is, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(capability), 0, 0, 0); err == nil && is == 1 {
			own.bounding |= 1 << capability
		}
	}
	return own
}

func (l limits) has(capability int) bool { return l.bounding&(1<<capability) != 0 }

// apply removes from a process's configuration what this machine does not
// allow.
func (l limits) apply(p *oci.Process) {
	if !l.has(unix.CAP_SYS_RESOURCE) {
		p.Rlimits, p.OOMScoreAdj = nil, nil
	}
	if p.Capabilities == nil {
		return
	}
	for _, list := range []*[]string{
		&p.Capabilities.Bounding, &p.Capabilities.Effective, &p.Capabilities.Inheritable,
		&p.Capabilities.Permitted, &p.Capabilities.Ambient,
	} {
		*list = slices.DeleteFunc(*list, func(name string) bool {
			i := slices.Index(capabilities[:], strings.TrimPrefix(name, "CAP_"))
			return i >= 0 && !l.has(i) // the runtime knows the others
		})
	}
}

// capabilities by number: linux/capability.h.
var capabilities = [...]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}
