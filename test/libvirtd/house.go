// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"bufio"
	_ "embed"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/outrigger/outrigger/test/stand"
)

//go:embed house.sh
var houseScript string

// house is a mount namespace with libvirt's folders in a folder of the test,
// and whatever runs in it.
type house struct {
	pid int
	// mounts identifies the namespace.
	mounts string
	// bridge is the interface to remove in the end.
	bridge string
	stdin  io.Closer
}

// openHouse makes the namespace; it ends with the test, and so does all that
// runs in it.
func openHouse(t testing.TB, dir string, poolSize int64) *house {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", houseScript, "house", dir, strconv.FormatInt(poolSize, 10))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &house{pid: cmd.Process.Pid, stdin: stdin}
	t.Cleanup(func() {
		h.clear(t)
		removeBridge(t, h.bridge)
		stdin.Close()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("libvirtd's mount namespace: %v", err)
	}
	h.mounts = namespace(h.pid)
	return h
}

// namespace returns an identifier of a process's mount namespace.
func namespace(pid int) string {
	link, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns/mnt"))
	return link
}

// command returns the arguments that run a program in the namespace.
func (h *house) command(args ...string) []string {
	return append([]string{"/usr/bin/nsenter", "--target", strconv.Itoa(h.pid), "--mount", "--"}, args...)
}

// processes returns what runs in the namespace besides its holder: daemons,
// DHCP servers, guests.
func (h *house) processes() []int {
	var found []int
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range paths {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if pid != h.pid && namespace(pid) == h.mounts {
			found = append(found, pid)
		}
	}
	return found
}

// clear ends all processes and removes what they leave in the network
// namespace.
func (h *house) clear(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for pids := h.processes(); len(pids) > 0; pids = h.processes() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			t.Errorf("processes %v of libvirtd do not end", pids)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// removeBridge removes the interface of a network and, with the last one, the
// firewall rules.
func removeBridge(t testing.TB, name string) {
	t.Helper()
	var gone netlink.LinkNotFoundError
	if name == "" {
		return
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.As(err, &gone) {
		t.Errorf("remove bridge %s: %v", name, err)
	}
	if _, err := netlink.LinkByName(bridgeName(0)); err == nil {
		return
	}
	// libvirt talks to iptables, which keeps these tables when they are empty.
	for _, family := range []string{"ip", "ip6"} {
		for _, table := range []string{"filter", "nat", "mangle"} {
			if _, err := output("nft", "list", "table", family, table); err == nil {
				stand.Run(t, "nft", "delete", "table", family, table)
			}
		}
	}
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
