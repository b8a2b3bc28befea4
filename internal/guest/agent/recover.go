// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/internal/guest/reaper"
)

// remembered is what a later agent needs to find a process, and to distinguish
// it from another with the same pid.
type remembered struct {
	PID   int    `json:"pid"`
	Since string `json:"since"` // its start time, as in /proc/PID/stat
}

type rememberedSandbox struct {
	remembered
	ID        string   `json:"id"`
	Hostname  string   `json:"hostname"`
	SharedPID bool     `json:"shared_pid"`
	DNS       bool     `json:"dns"`
	Mounts    []string `json:"mounts"`
}

type rememberedContainer struct {
	remembered
	RootFS    string `json:"rootfs"`
	Scratch   string `json:"scratch"`
	SharedPID bool   `json:"shared_pid"`
	NoNewPriv bool   `json:"no_new_privileges"`
}

const memoName = "outrigger.json"

func (a *Agent) rememberSandbox(sb *sandbox) error {
	memo := rememberedSandbox{
		remembered: memoOf(sb.pause), ID: sb.id, Hostname: sb.hostname, SharedPID: sb.sharedPID, DNS: sb.dns,
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	memo.Mounts = slices.Collect(maps.Keys(sb.mounts))
	return writeJSON(filepath.Join(sb.dir, memoName), memo)
}

func (a *Agent) rememberContainer(c *container) error {
	return writeJSON(filepath.Join(c.bundle, memoName), rememberedContainer{
		remembered: memoOf(c.init.child), RootFS: c.rootfs, Scratch: c.scratch, SharedPID: c.sharedPID, NoNewPriv: c.noNewPrivileges,
	})
}

func memoOf(c *reaper.Child) remembered { return remembered{PID: c.PID, Since: startTime(c.PID)} }

// startTime returns field 22 of /proc/PID/stat (proc(5)); empty without a process.
func startTime(pid int) string {
	if fields := processStat(pid); len(fields) >= 20 {
		return fields[19]
	}
	return ""
}

// processStat returns the fields of /proc/PID/stat after the name in brackets, which may
// hold spaces: the first is field 3 of proc(5). There are none without a process.
func processStat(pid int) []string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
}

// recover takes over what an earlier agent left. See the package comment.
func (a *Agent) recover() error {
	dir := filepath.Join(a.cfg.StateDir, "sandbox")
	var memo rememberedSandbox
	err := readJSON(filepath.Join(dir, memoName), &memo)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("state of the earlier agent: %w", err)
	}
	sb := &sandbox{
		id: memo.ID, hostname: memo.Hostname, sharedPID: memo.SharedPID, dns: memo.DNS, dir: dir,
		pause: adopt(memo.remembered), mounts: make(map[string]bool),
	}
	for _, path := range memo.Mounts {
		sb.mounts[path] = true
	}
	a.sandbox = sb
	bundles, err := os.ReadDir(filepath.Join(a.cfg.StateDir, "containers"))
	if err != nil {
		return err
	}
	for _, bundle := range bundles {
		a.recoverContainer(bundle.Name())
	}
	a.log.Warn("took over from an earlier agent: output in transit is lost", "sandbox", sb.id, "containers", len(a.containers))
	return nil
}

func (a *Agent) recoverContainer(id string) {
	c := newContainer(id, a.cfg.StateDir)
	var memo rememberedContainer
	if err := readJSON(filepath.Join(c.bundle, memoName), &memo); err != nil {
		a.log.Warn("container was partly created; DestroySandbox will remove it", "container", id, "err", err)
	}
	c.rootfs, c.scratch, c.sharedPID, c.noNewPrivileges = memo.RootFS, memo.Scratch, memo.SharedPID, memo.NoNewPriv
	c.state.Store(started)
	c.init = newProcess(adopt(memo.remembered), nil, nil, nil)
	if !c.init.child.Ended() {
		c.cgroup = cgroupOf(memo.PID)
		c.stopOOM = a.watchOOM(c)
	}
	a.containers[id] = c
	go a.awaitEnd(c)
}

// adopt returns a process that an earlier agent started, or one that has ended.
func adopt(memo remembered) *reaper.Child {
	if memo.Since != "" && startTime(memo.PID) == memo.Since {
		c, err := reaper.Adopt(memo.PID)
		if err == nil && startTime(memo.PID) == memo.Since {
			return c
		}
	}
	return reaper.Lost(memo.PID)
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}
