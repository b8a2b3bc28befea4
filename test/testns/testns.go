// SPDX-License-Identifier: Apache-2.0

// Package testns runs a package's tests in namespaces of their own, so that
// bridges, tunnels, nft rules, mounts and daemons of a test are never seen by
// the machine, and are gone when the tests end, however they end.
package testns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const stageVar = "OUTRIGGER_TESTNS_STAGE"

// Main is the whole of a package's TestMain: Run of its tests.
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// Run starts this program again as pid 1 of new network, mount, pid, uts and
// ipc namespaces with an empty /run; that process reaps orphans and starts the
// program again as its child, where Run calls f. Without root f runs where it
// is, so that each test can say what it needs.
func Run(f func() int) int {
	switch os.Getenv(stageVar) {
	case "":
		if os.Geteuid() != 0 {
			return f()
		}
		return enter()
	case "init":
		return initProcess()
	default:
		return f()
	}
}

// Inside reports whether this process is in namespaces that Run made.
func Inside() bool { return os.Getenv(stageVar) == "tests" }

// RequireRoot skips a test that needs namespaces when there are none.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for namespaces; run: sudo make test")
	}
}

func self(stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stageVar+"="+stage)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

func enter() int {
	cmd := self("init")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	// An interrupt from the terminal reaches the child as well; it decides.
	signal.Ignore(os.Interrupt)
	return exitCode(cmd.Run())
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "testns:", err)
	return 1
}

// initProcess is pid 1: what is orphaned in the namespace becomes its child.
func initProcess() int {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "testns:", err)
		return 1
	}
	// The race detector's exit hook needs a whole process; so the tests are a
	// child and not pid 1 itself.
	cmd := self("tests")
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "testns:", err)
		return 1
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			fmt.Fprintln(os.Stderr, "testns: wait:", err)
			return 1
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus()
		case pid == cmd.Process.Pid && status.Signaled():
			fmt.Fprintln(os.Stderr, "testns: tests ended by signal", status.Signal())
			return 1
		}
	}
}

func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := emptyFolder("/run", "/run/lock", "/run/netns"); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	return netlink.LinkSetUp(lo)
}

func emptyFolder(path string, folders ...string) error {
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount an empty %s: %w", path, err)
	}
	for _, f := range folders {
		if err := os.MkdirAll(f, 0o755); err != nil {
			return err
		}
	}
	return nil
}
