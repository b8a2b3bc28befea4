// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInContainer(t *testing.T) {
	env := func(value string) func(string) string {
		return func(name string) string {
			if name == "container" {
				return value
			}
			return ""
		}
	}
	for _, row := range []struct {
		args []string
		env  string
		want bool
	}{
		{nil, "", false}, {[]string{"splash"}, "", false}, {[]string{ContainerArg}, "", true}, {nil, "docker", true},
	} {
		if got := inContainer(row.args, env(row.env)); got != row.want {
			t.Errorf("%q, container=%q: %v", row.args, row.env, got)
		}
	}
}

// TestInCgroupRoot: a container in the machine's namespace would see all of the
// machine's tree of version 2 as its own.
func TestInCgroupRoot(t *testing.T) {
	for self, want := range map[string]bool{
		"0::/\n":                                  true,
		"0::/system.slice/docker-abc.scope\n":     false,
		"12:memory:/\n1:name=systemd:/\n0::/\n":   true,
		"12:memory:/docker/abc\n0::/docker/abc\n": false,
		"12:memory:/docker/abc\n":                 true, // cgroupMounts looks at those
	} {
		if got := inCgroupRoot(self); got != want {
			t.Errorf("%q: %v", self, got)
		}
	}
}

// TestCgroupMounts: a part of the machine's tree that is not the container's own
// is left read-only.
func TestCgroupMounts(t *testing.T) {
	const mounts = `600 599 0:52 / / rw,relatime - overlay overlay rw
610 609 0:55 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
611 610 0:30 / /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:11 - cgroup cgroup rw,memory
612 610 0:31 /docker/abc /sys/fs/cgroup/cpu ro,nosuid,nodev,noexec,relatime master:12 - cgroup cgroup rw,cpu
613 610 0:29 / /sys/fs/cgroup/unified ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw
broken line
`
	if diff := cmp.Diff([]string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"}, cgroupMounts(mounts)); diff != "" {
		t.Error(diff)
	}
}
