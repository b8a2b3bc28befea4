// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/guest/hold"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestPauseInAdvance: a held agent has started the pause process when it says that it waits. A
// sandbox uses it under the pod's host name, and has another if it is gone.
func TestPauseInAdvance(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("gone=%t", gone), func(t *testing.T) {
			p := unstartedAgent(t)
			holder, err := hold.New()
			if err != nil {
				t.Fatal(err)
			}
			p.held = holder.Child
			p.launch()
			holder.Child.Close()
			if err := holder.Await(); err != nil {
				t.Fatal(err)
			}
			before := pauses(p.cmd.Process.Pid)
			if len(before) != 1 {
				t.Fatalf("pause processes before there is a pod: %v", before)
			}
			holder.LetGo()
			p.connect()
			t.Cleanup(p.end)
			if gone {
				p.killPause(before[0])
			}
			p.must(p.agent.CreateSandbox(p.ctx, &agent.CreateSandboxRequest{SandboxId: "sb", Hostname: "podhost"}))
			after := pauses(p.cmd.Process.Pid)
			if len(after) != 1 || slices.Equal(before, after) == gone {
				t.Errorf("pause processes %v, with a pod %v", before, after)
			}
			name, err := exec.Command("nsenter", "--uts", "--target", strconv.Itoa(after[0]), "uname", "-n").Output()
			if err != nil || string(name) != "podhost\n" {
				t.Errorf("host name %q, %v", name, err)
			}
		})
	}
}

// killPause returns when the agent has seen the end of its pause process.
func (p *pod) killPause(pid int) {
	p.t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	for len(pauses(p.cmd.Process.Pid)) > 0 {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLHUP}}, 5); err != nil && err != unix.EINTR {
			p.t.Fatal(err)
		}
		if p.ctx.Err() != nil {
			p.t.Fatal("the agent did not see that its pause process has ended")
		}
	}
}

// pauses returns the pause processes of an agent, also those that have ended and that it has not seen.
func pauses(agent int) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range all {
		data, _ := os.ReadFile(path)
		if strings.Contains(string(data), fmt.Sprintf("\nPPid:\t%d\n", agent)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}
