// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed house.sh
var houseScript string

// house is a node's namespaces and cgroups, and whatever runs in them.
type house struct {
	pid int
	// mounts identifies the mount namespace.
	mounts string
	// cgroups are the node's folders, one for each hierarchy.
	cgroups []string
}

// openHouse makes the namespaces; they end with the test, and so does all that
// runs in them.
func openHouse(t testing.TB, n *Node) *house {
	t.Helper()
	h := &house{}
	h.makeCgroups(t, n.cgroup)
	cmd := exec.Command("unshare", "--mount", "--net", "--uts", "--ipc", "--propagation", "private",
		"sh", "-c", houseScript, "house", n.Dir, n.Name, n.IP)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err, "open a pipe")
	stdout, err := cmd.StdoutPipe()
	must(t, err, "open a pipe")
	must(t, cmd.Start(), "make the node's namespaces")
	h.pid = cmd.Process.Pid
	t.Cleanup(func() {
		h.clear(t)
		stdin.Close()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("make the node's namespaces: %v", err)
	}
	h.mounts = mountNamespace(h.pid)
	return h
}

// mountNamespace answers an identifier of a process's mount namespace.
func mountNamespace(pid int) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	return link
}

// command answers the arguments that run a program in the namespaces, in place
// of the one that enters them.
func (h *house) command(args ...string) []string {
	return append([]string{"/usr/bin/nsenter", "--target", strconv.Itoa(h.pid), "--mount", "--net", "--uts", "--ipc", "--"}, args...)
}

func (h *house) path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(h.pid), "root", path)
}

// makeCgroups makes the node's root of cgroups: kubelet wants it to be there,
// and in every hierarchy of version 1.
func (h *house) makeCgroups(t testing.TB, name string) {
	t.Helper()
	parents := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		parents, _ = filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
		for i := range parents {
			parents[i] = filepath.Dir(parents[i])
		}
	}
	for _, parent := range parents {
		dir := parent + name
		if resolved, err := filepath.EvalSymlinks(parent); err == nil && resolved != parent {
			continue // cpu is often a link to cpu,cpuacct
		}
		must(t, os.Mkdir(dir, 0o755), "make the node's cgroup")
		h.cgroups = append(h.cgroups, dir)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(parent, file)); err == nil && parent != "/sys/fs/cgroup" {
				must(t, os.WriteFile(filepath.Join(dir, file), value, 0), "fill the node's cpuset")
			}
		}
	}
}

// processes are those in the namespace besides its holder, and those in the
// cgroups: containers have mounts of their own.
func (h *house) processes() []int {
	found := map[int]bool{}
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range paths {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if mountNamespace(pid) == h.mounts {
			found[pid] = true
		}
	}
	for _, dir := range h.cgroups {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "cgroup.procs" {
				data, _ := os.ReadFile(path)
				for pid := range strings.FieldsSeq(string(data)) {
					n, _ := strconv.Atoi(pid)
					found[n] = true
				}
			}
			return nil
		})
	}
	delete(found, 0) // a process of another pid namespace
	delete(found, h.pid)
	var pids []int
	for pid := range found {
		pids = append(pids, pid)
	}
	return pids
}

// clear ends all processes and removes the cgroups, which no namespace does.
func (h *house) clear(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		pids := h.processes()
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(pids) == 0 && h.removeCgroups() == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the node does not end: processes %v, cgroups: %v", pids, h.removeCgroups())
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (h *house) removeCgroups() error {
	var all []error
	for _, top := range h.cgroups {
		var dirs []string
		filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			all = append(all, ignore(syscall.Rmdir(dir), syscall.ENOENT))
		}
	}
	return errors.Join(all...)
}
