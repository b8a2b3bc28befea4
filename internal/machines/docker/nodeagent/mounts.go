// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// prepareMounts makes of a container's file systems those of a machine, as far
// as its capabilities allow: kubelet and containerd write to their own part of
// the cgroups and hand mounts on to containers. In a container without
// SYS_ADMIN nobody needs that, and it is not an error.
func prepareMounts() []error {
	errs, allowed := makeWritable()
	if !allowed {
		return errs
	}
	return append(errs, delegate("/sys/fs/cgroup"))
}

// makeWritable is that part of it which a machine with systemd needs, too. It reports
// whether the container may do that.
func makeWritable() (errs []error, allowed bool) {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []error{err}, false
	}
	for _, at := range append(cgroupMounts(string(table)), "/sys") {
		err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		switch {
		case err == unix.EPERM:
			return nil, false
		case err != nil:
			errs = append(errs, fmt.Errorf("make %s writable: %w", at, err))
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		errs = append(errs, fmt.Errorf("share mounts: %w", err))
	}
	return errs, true
}

// delegate lets kubelet give resources to groups below a container's own. In
// version 2 of cgroups none may when there are processes in the group itself:
// they go to one of their own. Of version 1 there is nothing to do.
func delegate(root string) error {
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, "init"), 0o755)
	}
	var processes []byte
	if err == nil {
		processes, err = os.ReadFile(filepath.Join(root, "cgroup.procs"))
	}
	if err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	for pid := range strings.FieldsSeq(string(processes)) {
		if err := os.WriteFile(filepath.Join(root, "init", "cgroup.procs"), []byte(pid), 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("move process %s to a cgroup of its own: %w", pid, err)
		}
	}
	var errs []error
	for name := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil {
			errs = append(errs, fmt.Errorf("hand on the cgroup controller %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// privateDir has the copies of kernel settings.
const privateDir = "/run/node-agent/private"

// keepPrivate puts files with values in the place of settings of the kernel.
// What this kernel does not have is left out.
func keepPrivate(values map[string]string) []error {
	var errs []error
	for at, value := range values {
		if !strings.HasPrefix(filepath.Clean(at), "/proc/sys/") {
			errs = append(errs, fmt.Errorf("%s/settings.json: private: %s is not below /proc/sys", ConfigDir, at))
			continue
		}
		if _, err := os.Stat(at); err != nil {
			continue
		}
		copied := filepath.Join(privateDir, at)
		err := os.MkdirAll(filepath.Dir(copied), 0o755)
		if err == nil {
			err = os.WriteFile(copied, []byte(value+"\n"), 0o644)
		}
		if err == nil {
			err = unix.Mount(copied, at, "", unix.MS_BIND, "")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("keep %s private: %w", at, err))
		}
	}
	return errs
}

// cgroupMounts returns the mounts of cgroup file systems, and the folder that holds
// them if there are several.
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
