// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// prepareMounts makes of a container's file systems those of a machine, as far
// as its capabilities allow: kubelet and containerd write to their own part of
// the cgroups and hand mounts on to containers. In a container without
// SYS_ADMIN nobody needs that, and it is no error.
func prepareMounts() []error {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, at := range append(cgroupMounts(string(table)), "/sys") {
		err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		switch {
		case err == unix.EPERM:
			return nil
		case err != nil:
			errs = append(errs, fmt.Errorf("make %s writable: %w", at, err))
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		errs = append(errs, fmt.Errorf("share mounts: %w", err))
	}
	return errs
}

// cgroupMounts are those of the cgroup file systems, and the folder that holds
// them where there are several.
func cgroupMounts(table string) []string {
	var list []string
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) > 2 && (words[2] == "cgroup" || words[2] == "cgroup2" || words[1] == "/sys/fs/cgroup") {
			list = append(list, words[1])
		}
	}
	return list
}
