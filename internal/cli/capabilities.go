// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// allCapabilities are those of capabilities(7), in the order of their numbers.
var allCapabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
	MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// parseCapabilities returns the capabilities after --cap-add and --cap-drop, as docker does: ALL comes first,
// then single names in either list. nil means the default.
func parseCapabilities(add, drop []string) ([]string, error) {
	if len(add)+len(drop) == 0 {
		return nil, nil
	}
	added, err := capabilityNames("cap-add", add)
	if err != nil {
		return nil, err
	}
	dropped, err := capabilityNames("cap-drop", drop)
	if err != nil {
		return nil, err
	}
	all := podclient.DefaultCapabilities()
	if slices.Contains(added, "CAP_ALL") {
		all = nil
		for _, name := range allCapabilities {
			all = append(all, "CAP_"+name)
		}
	} else if slices.Contains(dropped, "CAP_ALL") {
		all = []string{} // nil would be the default
	}
	all = append(all, added...)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool {
		return name == "CAP_ALL" || slices.Contains(dropped, name)
	}), nil
}

func capabilityNames(flag string, given []string) (names []string, err error) {
	for _, text := range given {
		name := strings.TrimPrefix(strings.ToUpper(text), "CAP_")
		if name != "ALL" && !slices.Contains(allCapabilities, name) {
			return nil, fmt.Errorf("--%s %q is not a capability; capabilities(7) lists them", flag, text)
		}
		names = append(names, "CAP_"+name)
	}
	return names, nil
}
