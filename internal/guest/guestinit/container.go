// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/outrigger/outrigger/internal/guest/reaper"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"golang.org/x/sys/unix"
)

// ContainerArg makes this program the first process of a container.
const ContainerArg = "--container"

// inContainer reports whether PID 1 is that of a container. Container managers set
// the variable "container" (systemd's "Container Interface"); an image can pass
// [ContainerArg] instead.
func inContainer(args []string, getenv func(string) string) bool {
	return slices.Contains(args, ContainerArg) || getenv("container") != ""
}

// runInContainer runs PID 1 of a pod VM that is a container. The container manager has
// set up mounts, devices, network and name. Kernel, modules, sysctls and power belong
// to the machine and are left alone. It does not return.
func runInContainer() {
	g := &guest{con: &console{w: os.Stdout}, reaper: reaper.New(), held: map[string]*process{}}
	g.end = func(reason string) {
		g.con.logf("%s", reason)
		os.Exit(1)
	}
	go g.reaper.Run(context.Background())
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	go g.bootContainer()
	g.con.logf("ending: %s", <-end)
	os.Exit(0)
}

func (g *guest) bootContainer() {
	g.take([]step{
		{"cgroups", false, ownCgroups},
		{"user-data", true, g.provision},
		{"services", true, g.startServices},
	})
	g.writeMarks(marks.Beside(agentSocket))
	if g.awaitAgent() {
		g.con.logf("agent is ready")
	}
}

// ownCgroups makes the container's own part of the cgroup tree writable, so that
// its containers get cgroups below it. It refuses where the container shares the
// machine's cgroup namespace: all of the machine's tree would become writable.
func ownCgroups() error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if !inCgroupRoot(string(self)) {
		return errors.New("the container shares the machine's cgroup namespace, so that its containers get no cgroups: run it with --cgroupns=private")
	}
	var errs []error
	for _, target := range cgroupMounts(string(data)) {
		if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			errs = append(errs, fmt.Errorf("make %s writable: %w", target, err))
		}
	}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		errs = append(errs, leaveCgroupRoot(), enableControllers())
	}
	return errors.Join(errs...)
}

// inCgroupRoot reports whether the root of the tree that is seen is the container's
// part of it, and not the machine's, of which version 2 (line 0 of
// /proc/self/cgroup, cgroups(7)) shows a container in the machine's namespace
// all.
func inCgroupRoot(self string) bool {
	for line := range strings.Lines(self) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			return path == "/"
		}
	}
	return true
}

// cgroupMounts returns where cgroups are mounted whose root is the container's
// own (proc_pid_mountinfo(5): fields 4 and 5 are root and mount point, the type
// comes after " - ").
func cgroupMounts(mountinfo string) []string {
	var targets []string
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(kind) == 0 || kind[0] != "cgroup" && kind[0] != "cgroup2" {
			continue
		}
		if fields[3] == "/" {
			targets = append(targets, fields[4])
		}
	}
	return targets
}

// leaveCgroupRoot moves all processes into a group below: a cgroup of version 2
// has either processes or children with controllers.
func leaveCgroupRoot() error {
	inner := filepath.Join(cgroupRoot, "podvm")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		return err
	}
	pids, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.procs"))
	if err != nil {
		return err
	}
	var errs []error
	for pid := range bytes.FieldsSeq(pids) {
		errs = append(errs, os.WriteFile(filepath.Join(inner, "cgroup.procs"), pid, 0))
	}
	return errors.Join(errs...)
}
