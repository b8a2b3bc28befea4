// SPDX-License-Identifier: Apache-2.0

//go:build integration

package disks

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestDeviceOfAContainer: it has the numbers of this machine, and the container what it was promised. The disk, which is
// neither empty nor a file system, is left as it is.
func TestDeviceOfAContainer(t *testing.T) {
	s := newStand(t)
	file := s.blank()
	s.write(file, "data of a user")
	s.resize(file, diskSize)
	dev := s.attach("raw-1", file)
	spec := &agent.Spec{Linux: &agent.Linux{Devices: []*agent.LinuxDevice{{Path: "/dev/other", Type: "b", Major: 7, Minor: 9}, {Path: "/dev/x", Type: "b", Major: 7, Minor: 99}}}}
	st := &agent.Storage{Driver: directvolume.GuestRawDriver, Source: "raw-1", MountPoint: "/dev/x", Options: []string{"r"}}
	if err := s.GiveDevice(t.Context(), st, spec); err != nil {
		t.Fatal(err)
	}
	var of unix.Stat_t
	if err := unix.Stat(dev, &of); err != nil {
		t.Fatal(err)
	}
	major, minor := int64(unix.Major(of.Rdev)), int64(unix.Minor(of.Rdev))
	if d := spec.Linux.Devices; d[1].Major != major || d[1].Minor != minor || d[0].Minor != 9 {
		t.Errorf("devices %v; want %d:%d", d, major, minor)
	}
	rules := spec.Linux.Resources.Devices
	if len(rules) != 1 || !rules[0].Allow || rules[0].Type != "b" || rules[0].Major != major || rules[0].Minor != minor || rules[0].Access != "r" {
		t.Errorf("rules %v", rules)
	}
	st.MountPoint = "/dev/y"
	if err := s.GiveDevice(t.Context(), st, spec); err == nil {
		t.Error("a device that the container does not have")
	}
	if len(s.log) > 0 {
		t.Errorf("log %q", s.log)
	}
}
