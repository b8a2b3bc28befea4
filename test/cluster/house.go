// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	mounts  string
	cgroups cgroups
}

// openHouse makes the namespaces; they end with the test, and so does all that
// runs in them.
func openHouse(t testing.TB, n *Node) *house {
	t.Helper()
	h := &house{cgroups: makeCgroups(t, n.Dir)}
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

// mountNamespace returns an identifier of a process's mount namespace.
func mountNamespace(pid int) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	return link
}

// command returns the arguments that run a program in the namespaces, in place
// of the one that enters them.
func (h *house) command(args ...string) []string {
	return append([]string{"/usr/bin/nsenter", "--target", strconv.Itoa(h.pid), "--mount", "--net", "--uts", "--ipc", "--"}, args...)
}

func (h *house) path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(h.pid), "root", path)
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
	for _, pid := range h.cgroups.processes() {
		found[pid] = true
	}
	delete(found, 0) // a process of another pid namespace
	delete(found, h.pid)
	return slices.Collect(maps.Keys(found))
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
		if len(pids) == 0 && h.cgroups.remove() == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the node does not end: processes %v, cgroups: %v", pids, h.cgroups.remove())
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
