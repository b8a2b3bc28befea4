// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup holds the folders of a container's cgroup: one with cgroup v2, one per
// controller with v1.
type cgroup struct {
	unified string // empty with v1
	v1      map[string]string
}

// unifiedAt reports whether the machine has cgroup v2 only, as pod VMs do.
func unifiedAt(root string) bool {
	var st unix.Statfs_t
	return unix.Statfs(root, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// cgroupOf returns the cgroup of a process. It leaves out cgroups that also hold
// the agent: not all processes in them are the container's.
func cgroupOf(pid int) cgroup {
	return cgroupFrom(fmt.Sprintf("/proc/%d/cgroup", pid), "/proc/self/cgroup", cgroupRoot, unifiedAt(cgroupRoot))
}

func cgroupFrom(file, own, root string, unified bool) cgroup {
	ours := parseCgroups(own)
	cg := cgroup{v1: make(map[string]string)}
	for controllers, path := range parseCgroups(file) {
		if strings.HasPrefix(ours[controllers]+"/", strings.TrimSuffix(path, "/")+"/") {
			continue
		}
		switch {
		case controllers == "" && unified:
			cg.unified = filepath.Join(root, path)
		case controllers != "" && !unified:
			for controller := range strings.SplitSeq(controllers, ",") {
				cg.v1[controller] = filepath.Join(root, controller, path)
			}
		}
	}
	return cg
}

// parseCgroups returns the paths in a /proc/PID/cgroup by controllers; v2's entry has
// the key "".
func parseCgroups(file string) map[string]string {
	out := make(map[string]string)
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			out[parts[1]] = parts[2]
		}
	}
	return out
}

// processes returns a folder whose cgroup.procs lists the processes; empty if there is none.
func (c cgroup) processes() string {
	return cmp.Or(c.unified, c.v1["devices"], c.v1["freezer"], c.v1["memory"], c.v1["cpu"], c.v1["pids"])
}

// signal signals the processes that exist now and are not in seen, and adds them to it.
// It reports whether there were any.
func (c cgroup) signal(sig unix.Signal, seen map[int]bool) (signaled bool, err error) {
	for _, pid := range c.pids() {
		if seen[pid] {
			continue
		}
		seen[pid], signaled = true, true
		if e := unix.Kill(pid, sig); e != nil && e != unix.ESRCH {
			err = errors.Join(err, fmt.Errorf("signal %d to process %d: %w", sig, pid, e))
		}
	}
	return signaled, err
}

// killAll kills all processes, also those that are forked meanwhile.
func (c cgroup) killAll() error {
	if c.unified != "" {
		err := os.WriteFile(filepath.Join(c.unified, "cgroup.kill"), []byte("1"), 0)
		if err == nil || errors.Is(err, unix.ENODEV) {
			return nil
		}
	}
	for seen := make(map[int]bool); ; {
		signaled, err := c.signal(unix.SIGKILL, seen)
		if err != nil || !signaled {
			return err
		}
	}
}

func (c cgroup) pids() []int {
	top := c.processes()
	if top == "" {
		return nil
	}
	var pids []int
	filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			data, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for field := range strings.FieldsSeq(string(data)) {
				// 0 is a process of another pid namespace.
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
		return nil // a folder that vanished meanwhile has no processes
	})
	return pids
}

// thaw lets frozen processes continue, for instance so that a signal can kill
// them.
func (c cgroup) thaw() error {
	file, value := filepath.Join(c.v1["freezer"], "freezer.state"), "THAWED"
	if c.unified != "" {
		file, value = filepath.Join(c.unified, "cgroup.freeze"), "0"
	} else if c.v1["freezer"] == "" {
		return nil
	}
	err := os.WriteFile(file, []byte(value), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// readUint returns 0 for a file that is missing or says "max".
func readUint(file string) uint64 {
	data, _ := os.ReadFile(file)
	n, _ := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return n
}

// readTable reads lines of "key value".
func readTable(file string) map[string]uint64 {
	out := make(map[string]uint64)
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
				out[strings.TrimSuffix(fields[0], ":")] = n
			}
		}
	}
	return out
}
