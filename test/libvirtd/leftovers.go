// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Leftovers returns what is there besides network, pool and base volume: of
// domains and volumes what the daemon knows, and of everything what is on disk,
// in the process table and on the bridge.
func (d *Daemon) Leftovers() ([]string, error) {
	known, err := d.known()
	if err != nil {
		return nil, err
	}
	left := slices.Concat(known, d.files(), d.taps())
	for _, pid := range d.guests() {
		left = append(left, fmt.Sprintf("QEMU process %d", pid))
	}
	return left, nil
}

// WantNothing fails the test if something is left after a grace for what
// libvirt does after its reply.
func (d *Daemon) WantNothing(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		left, err := d.Leftovers()
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind in libvirt (%v):\n%s", err, strings.Join(left, "\n"))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// known is what the daemon tells: one connection for all questions.
func (d *Daemon) known() ([]string, error) {
	const next = "---"
	out, err := d.virsh(fmt.Sprintf(
		"list --all --name; echo %[1]s; vol-list %[2]s; echo %[1]s; net-dumpxml %[3]s; echo %[1]s; net-dhcp-leases %[3]s", next, Pool, Network))
	if err != nil {
		return nil, err
	}
	parts := strings.Split(out, next)
	if len(parts) != 4 || strings.Contains(out, "error:") {
		return nil, fmt.Errorf("virsh printed %q", out)
	}
	var left []string
	add := func(what, text string, want func(string) bool) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && want(line) {
				left = append(left, what+" "+line)
			}
		}
	}
	add("domain", parts[0], func(string) bool { return true })
	add("volume", parts[1], func(line string) bool { return strings.Fields(line)[0] != Volume })
	add("address", parts[2], func(line string) bool { return strings.HasPrefix(line, "<host ") })
	add("lease", parts[3], func(string) bool { return true })
	return left, nil
}

// files are those that libvirt or the provider may leave, whatever the daemon
// knows.
func (d *Daemon) files() []string {
	var left []string
	for _, pattern := range []string{
		"pool/*", "run/qemu/*.xml", "etc/qemu/*.xml", "lib/qemu/domain-*",
		"lib/qemu/nvram/*", "lib/qemu/channel/target/*", "lib/images/*",
	} {
		found, _ := filepath.Glob(d.Path(pattern))
		for _, path := range found {
			name := filepath.Join(filepath.Dir(pattern), filepath.Base(path))
			if filepath.Base(path) != Volume && !slices.Contains(d.orphaned, name) {
				left = append(left, "file "+name)
			}
		}
	}
	for _, name := range []string{Network + ".hostsfile", Network + ".addnhosts"} {
		data, err := os.ReadFile(d.Path("lib/dnsmasq/" + name))
		if text := strings.TrimSpace(string(data)); text != "" || err != nil && !errors.Is(err, os.ErrNotExist) {
			left = append(left, fmt.Sprintf("%s: %s %v", name, text, err))
		}
	}
	return left
}

// halfStarted returns the folders of domains whose start had not come as far as their
// status. A libvirtd that is killed then does not know of the start afterwards, and
// leaves the folders: they are named by a number that it does not use again.
func (d *Daemon) halfStarted() []string {
	var half []string
	for _, pattern := range []string{"lib/qemu/domain-*", "lib/qemu/channel/target/domain-*"} {
		folders, _ := filepath.Glob(d.Path(pattern))
		for _, folder := range folders {
			_, domain, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), "domain-"), "-")
			if status, _ := filepath.Glob(d.Path("run/qemu/" + domain + "*.xml")); len(status) == 0 { // the folder's name may be cut
				half = append(half, filepath.Join(filepath.Dir(pattern), filepath.Base(folder)))
			}
		}
	}
	return half
}

// guests are the QEMU processes. libvirt runs one now and then to learn what
// it can do; that is none.
func (d *Daemon) guests() []int {
	var pids []int
	for _, pid := range d.house.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(string(line), "\x00")
		if strings.HasPrefix(filepath.Base(args[0]), "qemu-system") && slices.Contains(args, "-name") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// taps are the guests' interfaces on the bridge.
func (d *Daemon) taps() []string {
	found, _ := filepath.Glob(d.rootPath("/sys/class/net/" + d.Bridge + "/brif/*"))
	for i, path := range found {
		found[i] = "interface " + filepath.Base(path)
	}
	return found
}

// Path returns where a file of Dir is as the daemon sees it: the pool may be a
// file system of its own.
func (d *Daemon) Path(name string) string { return d.rootPath(filepath.Join(d.Dir, name)) }

// rootPath returns a path in the daemon's mount namespace.
func (d *Daemon) rootPath(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", d.house.pid, path)
}
