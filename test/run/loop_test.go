// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// usage is what a daemon holds.
type usage struct {
	descriptors, threads int
	rssKiB               int
}

func (u usage) String() string {
	return fmt.Sprintf("%d descriptors, %d threads, %d KiB", u.descriptors, u.threads, u.rssKiB)
}

func usageOf(t *testing.T, pid int) usage {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	descriptors, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	u := usage{descriptors: len(descriptors)}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			u.rssKiB, _ = strconv.Atoi(fields[1])
		case "Threads:":
			u.threads, _ = strconv.Atoi(fields[1])
		}
	}
	return u
}

// relayPid returns the relay that serves the sockets of dir.
func relayPid(t *testing.T, dir string) int {
	t.Helper()
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		line, _ := os.ReadFile(p)
		args := strings.Split(string(line), "\x00")
		if filepath.Base(args[0]) == "agent-relay" && strings.Contains(string(line), dir) {
			pid, _ := strconv.Atoi(strings.Split(p, "/")[2])
			return pid
		}
	}
	t.Fatal("no agent-relay is running")
	return 0
}

// diskUsage is what du says of a folder, in KiB.
func diskUsage(t *testing.T, dir string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Fields(stand.Run(t, "du", "-sk", dir))[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestManyPods makes and removes pods and compares what the daemons hold with
// what they held after the first few.
func TestManyPods(t *testing.T) {
	n := newNode(t)
	for i := range tier.Rounds(t, 2, 5) {
		n.onePod(t, i)
	}
	relay := relayPid(t, n.dir)
	before := [2]usage{usageOf(t, n.adaptor.Pid), usageOf(t, relay)}
	disk := diskUsage(t, n.dir)
	rounds := tier.Rounds(t, 4, 50)
	for i := range rounds {
		n.onePod(t, i)
	}
	n.wantNothingLeft(t)
	after := [2]usage{usageOf(t, n.adaptor.Pid), usageOf(t, relay)}
	for i, name := range []string{"cloud-api-adaptor", "agent-relay"} {
		t.Logf("%s: before %v, after %v", name, before[i], after[i])
		if after[i].descriptors > before[i].descriptors+3 {
			t.Errorf("%s holds descriptors: %v, before %v", name, after[i], before[i])
		}
		if after[i].threads > before[i].threads+8 {
			t.Errorf("%s holds threads: %v, before %v", name, after[i], before[i])
		}
		// Of 50 pods a leak of 100 KiB for each shows; after a few only the collector's slack does.
		if rounds >= 50 && after[i].rssKiB > before[i].rssKiB+5000 {
			t.Errorf("%s holds memory: %v, before %v", name, after[i], before[i])
		}
	}
	if now := diskUsage(t, n.dir); now > disk+1024 {
		t.Errorf("the state folder grew from %d to %d KiB", disk, now)
	}
}

func (n *node) onePod(t *testing.T, i int) {
	t.Helper()
	// One name, so one network namespace: each pod must leave it as it was.
	p := n.newPod(t, "loop")
	c, stdout, _ := p.container(t, "main", "echo", "hello")
	if code, err := c.Wait(t.Context()); err != nil || code != 0 || stdout.String() != "hello\n" {
		t.Fatalf("pod %d: exit code %d, %v, %q", i, code, err, stdout)
	}
	p.stop(t)
}
