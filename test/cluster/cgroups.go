// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// cgroups are a node's folders, one for each hierarchy. They are what no
// namespace holds: they are in the machine's tree and have to be removed.
type cgroups []string

// cgroupPrefix comes before the name of a node's folder.
const cgroupPrefix = "outrigger-"

// makeCgroups makes the root of the cgroups of a node, or of the guests of a
// cloud, whose folder is dir: kubelet wants it to be there, and in every
// hierarchy of version 1.
func makeCgroups(t testing.TB, dir string) cgroups {
	t.Helper()
	parents := hierarchies()
	removeStale(parents, filepath.Dir(dir))
	lock(t, filepath.Join(dir, "lock"))
	var made cgroups
	for _, parent := range parents {
		cgroup, err := makeCgroup(parent, cgroupPrefix+filepath.Base(dir))
		must(t, err, "make a cgroup")
		made = append(made, cgroup)
	}
	return made
}

// makeCgroup makes one that processes may enter.
func makeCgroup(parent, name string) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
		return dir, nil // in version 2 an empty cpuset stands for the parent's
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), value, 0)
		}
		if err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// hierarchies are the mount points of version 1, or the one of version 2.
func hierarchies() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err == nil {
		return []string{root}
	}
	files, _ := filepath.Glob(root + "/*/cgroup.procs")
	var dirs []string
	for _, f := range files {
		dir := filepath.Dir(f)
		// cpu is often a link to cpu,cpuacct.
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// lock shows that the node is alive for as long as this process.
func lock(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err, "mark the node as alive")
	t.Cleanup(func() { f.Close() })
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX), "mark the node as alive")
}

// removeStale removes what nodes of killed tests have left: their processes
// ended with the pid namespace, but cgroups and folder are still there.
func removeStale(parents []string, folders string) {
	for _, parent := range parents {
		found, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*"))
		for _, cgroup := range found {
			dir := filepath.Join(folders, strings.TrimPrefix(filepath.Base(cgroup), cgroupPrefix))
			if !alive(dir) && (cgroups{cgroup}).remove() == nil {
				os.RemoveAll(dir)
			}
		}
	}
}

func alive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		// A node makes the lock before its cgroups, and removes it after them.
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

func (c cgroups) processes() []int {
	var pids []int
	for _, dir := range c.folders() {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for text := range strings.FieldsSeq(string(data)) {
			pid, _ := strconv.Atoi(text)
			pids = append(pids, pid)
		}
	}
	return pids
}

func (c cgroups) remove() error {
	var all []error
	for _, dir := range slices.Backward(c.folders()) {
		all = append(all, ignore(syscall.Rmdir(dir), syscall.ENOENT))
	}
	return errors.Join(all...)
}

// folders are all below and with these, parents before children.
func (c cgroups) folders() []string {
	var dirs []string
	for _, top := range c {
		filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	return dirs
}
