// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

// onLibvirt starts a libvirt daemon and lets programs of this test find it, as
// a user does, by the environment.
func onLibvirt(t *testing.T, more ...string) *libvirtd.Daemon {
	t.Helper()
	d := libvirtd.Start(t, libvirtd.Options{NAT: true})
	t.Cleanup(func() { d.WantNothing(t) })
	for _, setting := range append(d.Env(), append([]string{"LIBVIRT_MEMORY=512", "LIBVIRT_CPU=1", "LIBVIRT_ROOT_DISK_SIZE=1"}, more...)...) {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	return d
}

// TestRunOnLibvirt boots the base volume by UEFI, as a cluster would.
func TestRunOnLibvirt(t *testing.T) {
	tier.OnlyAll(t) // TestDetachedPodOnLibvirt has a pod there, and providers/libvirt a VM that boots its disk
	c := newCLI(t)
	t.Run("ExitCode", func(t *testing.T) {
		d := onLibvirt(t)
		stdout, stderr, code := c.run(t, "", "run", "--provider", "libvirt", "--memory", "32MiB", c.image, "--", "sh", "-c", "echo out; exit 3")
		if code != 3 || stdout != "out\n" {
			t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
		}
		d.WantNothing(t)
	})
	// The daemon has taken its bridge and firewall rules along.
	c.wantNothing(t)
}

// TestDetachedPodOnLibvirt: a new adaptor, which has the flags of the first one,
// finds the pod.
func TestDetachedPodOnLibvirt(t *testing.T) {
	c := newCLI(t)
	t.Run("Life", func(t *testing.T) {
		dir := libvirtd.ImageDir(t)
		d := onLibvirt(t, "LIBVIRT_URI=", "LIBVIRT_KERNEL="+filepath.Join(dir, "vmlinux"), "LIBVIRT_INITRD="+filepath.Join(dir, "initrd.cpio"))
		_, stderr, code := c.run(t, "", "run", "--provider", "libvirt", "--adaptor-arg=-uri="+d.URI, "--detach", "--name", "web",
			c.image, "--", "sh", "-c", "echo first; sleep 1000000")
		if code != 0 {
			t.Fatalf("exit code %d\n%s", code, stderr)
		}
		c.killAdaptor(t)
		if stdout, stderr, code := c.run(t, "", "exec", "web", "echo", "second"); code != 0 || stdout != "second\n" {
			t.Errorf("exec: exit code %d, %q\n%s", code, stdout, stderr)
		}
		if stdout, stderr, code := c.run(t, "", "console", "web"); code != 0 || !strings.Contains(stdout, "podvm-agent") {
			t.Errorf("console: exit code %d, %q\n%s", code, tail(stdout), stderr)
		}
		rebootIsNoticed(t, c, d)
		if _, stderr, code := c.run(t, "", "rm", "-f", "web"); code != 0 {
			t.Errorf("rm: exit code %d\n%s", code, stderr)
		}
	})
	c.wantNothing(t)
}

// rebootIsNoticed: libvirt ends the domain of a guest that reboots, as one that panics
// does. The bound is that of guestPanics.
func rebootIsNoticed(t *testing.T, c *cli, d *libvirtd.Daemon) {
	const soon = 20 * time.Second
	domain := strings.TrimSpace(d.Virsh(t, "list", "--name"))
	ended := make(chan int, 1)
	go func() {
		_, _, code := c.run(t, "", "exec", "web", "sh", "-c", "touch /up; sleep 1000000")
		ended <- code
	}()
	eventually(t, func() error {
		if _, stderr, code := c.run(t, "", "exec", "web", "test", "-e", "/up"); code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	select {
	case code := <-ended:
		t.Fatalf("exec ended before the reboot with exit code %d", code)
	default:
	}
	d.Virsh(t, "qemu-monitor-command", "--hmp", domain, "system_reset")
	began := time.Now()
	code := <-ended
	took := time.Since(began)
	t.Logf("noticed after %v: exit code %d", took, code)
	if code == 0 || took > soon {
		t.Errorf("the reboot of the guest was noticed after %v, want %v, with exit code %d", took, soon, code)
	}
}

// TestRunSaysWhatIsWrongWithLibvirt: the cause reaches the terminal, and
// nothing stays.
func TestRunSaysWhatIsWrongWithLibvirt(t *testing.T) {
	testns.RequireRoot(t)
	c := newCLI(t)
	for _, tc := range []struct {
		name, setting, value string
		want                 []string
	}{
		{"NoDaemon", "LIBVIRT_URI", "qemu+unix:///system?socket=/nosuch.sock", []string{"/nosuch.sock", "LIBVIRT_URI"}},
		{"NoURI", "LIBVIRT_URI", "nonsense", []string{"nonsense", "LIBVIRT_URI"}},
		{"NotANumber", "LIBVIRT_CPU", "many", []string{"many", "LIBVIRT_CPU"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("LIBVIRT_URI", "qemu:///system")
			t.Setenv(tc.setting, tc.value)
			_, stderr, code := c.run(t, "", "run", "--provider", "libvirt", c.image)
			if code != 125 {
				t.Errorf("exit code %d, want 125", code)
			}
			for _, want := range tc.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr lacks %q:\n%s", want, stderr)
				}
			}
			c.wantNothing(t)
		})
	}
}
