// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one entry of the boot-time mount table.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	options                string
}

// bootMounts are what every program in the guest expects. /run holds container
// images when there is no scratch disk, so it may fill most of the memory.
var bootMounts = []mount{
	{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"},
	{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"mqueue", "/dev/mqueue", "mqueue", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755,size=75%"},
	{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"cgroup2", cgroupRoot, "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "nsdelegate"},
}

// mountEventLog mounts what the kernel says of a TPM: in it is the firmware's log of what it measured,
// which a verifier replays.
func mountEventLog() error {
	if _, err := os.Stat("/sys/class/tpm/tpm0"); err != nil {
		return nil
	}
	return mount{"securityfs", "/sys/kernel/security", "securityfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""}.mount()
}

const cgroupRoot = "/sys/fs/cgroup"

// makeRootPivotable moves the initramfs onto a mount of its own: pivot_root(2)
// refuses the kernel's first root because that is attached to nothing.
func makeRootPivotable() error {
	const dir = "/mnt"
	if err := unix.Mount("/", dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /: %w", err)
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Mount(dir, "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move %s to /: %w", dir, err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

func (m mount) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
	}
	return nil
}

// standardLinks are names in /dev that programs rely on.
var standardLinks = map[string]string{
	"/dev/fd":     "/proc/self/fd",
	"/dev/stdin":  "/proc/self/fd/0",
	"/dev/stdout": "/proc/self/fd/1",
	"/dev/stderr": "/proc/self/fd/2",
}

func linkStandardDevices() error {
	for name, target := range standardLinks {
		if err := os.Symlink(target, name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// enableControllers hands every controller the kernel has to child groups.
func enableControllers() error {
	data, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return err
	}
	controllers := strings.Fields(string(data))
	for i, name := range controllers {
		controllers[i] = "+" + name
	}
	return os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte(strings.Join(controllers, " ")), 0)
}

// sysctls let the guest start without duplicate address detection (1 s), and end
// rather than hang on a panic. It is not a router: the tunnel and a second NIC are
// in the pod's namespace, which inherits this, and a neighbour would get from one
// of the VM's networks to the other, past the policies of both.
var sysctls = map[string]string{
	"net/ipv4/ip_forward":              "0",
	"net/ipv6/conf/all/accept_dad":     "0",
	"net/ipv6/conf/default/accept_dad": "0",
	"kernel/modprobe":                  "/init",
	"kernel/panic":                     "-1",
	"kernel/panic_on_oops":             "1",
	"vm/overcommit_memory":             "1",
	"vm/panic_on_oom":                  "0",
}

func setSysctls() error {
	var errs []error
	for name, value := range sysctls {
		errs = append(errs, os.WriteFile("/proc/sys/"+name, []byte(value), 0))
	}
	return errors.Join(errs...)
}
