// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/outrigger/outrigger/internal/cli/node"
)

// surroundings are what a pod may leave on this machine, by kind.
type surroundings map[string]map[string]bool

// kinds in the order in which they are listed.
var kinds = []string{"process", "network interface", "network namespace", "nftables table", "forwarding setting", "file or socket"}

// lookAround lists them. root is where our state lies.
func lookAround(root string) (surroundings, error) {
	s := surroundings{}
	for _, k := range kinds {
		s[k] = map[string]bool{}
	}
	s.processes(root)
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	for _, l := range links {
		s["network interface"][l.Attrs().Name] = true
	}
	s.tables()
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if data, err := os.ReadFile(file); err == nil {
			s["forwarding setting"][file+"="+strings.TrimSpace(string(data))] = true
		}
	}
	s.files("network namespace", "/run/netns", 1)
	s.files("network namespace", "/run/outrigger/netns", 1)
	s.files("file or socket", root, 3)
	s.files("file or socket", filepath.Dir(node.DefaultRoot)+"/peerpod", 3)
	s.files("file or socket", "/var/lib/outrigger", 3)
	return s, nil
}

// processes lists ours: by the name of the program, or by our root folder among
// the arguments. Zombies hold nothing.
func (s surroundings) processes(root string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		args := strings.Split(string(cmdline), "\x00")
		if err != nil || pid == os.Getpid() || pid == os.Getppid() || args[0] == "" {
			continue
		}
		name := filepath.Base(args[0])
		ours := name == "cloud-api-adaptor" || name == "agent-relay" || strings.HasPrefix(name, "qemu-system-") ||
			name == "outrigger" && len(args) > 1 && args[1] == "monitor" || strings.Contains(string(cmdline), root+"/")
		if ours {
			s["process"][fmt.Sprintf("%s (%d)", name, pid)] = true
		}
	}
}

func (s surroundings) tables() {
	conn, err := nftables.New()
	if err != nil {
		return // without nftables there are none
	}
	tables, _ := conn.ListTables()
	for _, t := range tables {
		s["nftables table"][fmt.Sprintf("%d %s", t.Family, t.Name)] = true
	}
}

func (s surroundings) files(kind, dir string, depth int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	s[kind][dir] = true
	for _, e := range entries {
		s[kind][filepath.Join(dir, e.Name())] = true
		if e.IsDir() && depth > 1 {
			s.files(kind, filepath.Join(dir, e.Name()), depth-1)
		}
	}
}

// since returns what of a kind was not there before.
func (s surroundings) since(before surroundings, kind string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s[kind])), func(name string) bool { return before[kind][name] })
}

// settleTime is how long processes that are ending may take.
const settleTime = 10 * time.Second

// checkClean reports each kind whether anything stayed.
func (d *demo) checkClean(before surroundings) {
	d.say("\n3. What is left on this machine?\n")
	left, some := map[string][]string{}, true
	for end := time.Now().Add(settleTime); some && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		now, err := lookAround(d.root)
		if err != nil {
			d.check(false, "look at this machine: %v", err)
			return
		}
		some = false
		for _, k := range kinds {
			left[k] = now.since(before, k)
			some = some || len(left[k]) > 0
		}
	}
	for _, k := range kinds {
		if left := left[k]; len(left) == 0 {
			d.check(true, "no %s", k)
		} else {
			d.check(false, "%s: %s", k, strings.Join(left, ", "))
		}
	}
}
