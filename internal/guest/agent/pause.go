// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/guest/reaper"
	"golang.org/x/sys/unix"
)

// PauseName is the argv[0] with which the agent becomes the pause process.
const PauseName = "pause"

// pauseID is the user and group of the pause process, as in Kubernetes' pause
// image.
const pauseID = 65535

// pauseProcess returns the command of the process that holds a sandbox's ipc, uts and
// pid namespaces, and the pipe on which it says that it does.
// It also replaces the pod's pause container, which would have the same namespaces:
// starting that through the runtime would take more than a second in an emulated VM.
func pauseProcess(stateDir string) (cmd *exec.Cmd, ready *os.File, err error) {
	root := filepath.Join(stateDir, "pause")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, nil, err
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{PauseName, root}, Env: []string{},
		Stderr: os.Stderr, ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
			Setsid:     true,
		},
	}, ready, nil
}

// startPause starts the pause process with r and returns when it is ready.
func startPause(r *reaper.Reaper, stateDir string) (*reaper.Child, error) {
	cmd, ready, err := pauseProcess(stateDir)
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	c, err := r.Start(cmd)
	cmd.ExtraFiles[0].Close()
	if err != nil {
		return nil, fmt.Errorf("start the sandbox's pause process: %w", err)
	}
	ready.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		r.Kill(c)
		return nil, fmt.Errorf("the sandbox's pause process did not get ready: %w", err)
	}
	return c, nil
}

// takePause returns the pause process of a new sandbox: the one that was started before
// there was a pod, or another.
func (a *Agent) takePause(hostname string) (*reaper.Child, error) {
	c := a.cfg.pause
	a.cfg.pause = nil
	if c == nil || c.Ended() {
		var err error
		if c, err = startPause(a.reaper, a.cfg.StateDir); err != nil {
			return nil, err
		}
	}
	if hostname == "" {
		return c, nil
	}
	if err := setHostname(c, hostname); err != nil {
		return nil, errors.Join(fmt.Errorf("set host name %q: %w", hostname, err), a.reaper.Kill(c))
	}
	return c, nil
}

func setHostname(pause *reaper.Child, name string) error {
	uts, err := os.Open(namespace(pause, "uts"))
	if err != nil {
		return err
	}
	defer uts.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := unix.Setns(int(uts.Fd()), unix.CLONE_NEWUTS)
		if err == nil {
			err = unix.Sethostname([]byte(name))
		}
		done <- err
	}()
	return <-done
}

// Pause runs the pause process; args is an empty folder. As pid 1 of
// the pod's namespaces it reaps orphans until SIGTERM or SIGINT. It has no privileges
// and an empty root, since containers that share its pid namespace can see it.
func Pause(args []string) int {
	ended := make(chan os.Signal, 4)
	signal.Notify(ended, unix.SIGTERM, unix.SIGINT)
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, unix.SIGCHLD)
	if err := preparePause(args); err != nil {
		slog.Error("pause", "err", err)
		return 1
	}
	for {
		select {
		case <-ended:
			return 0
		case <-orphans:
			for pid, err := 1, error(nil); pid > 0 || err == unix.EINTR; {
				pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil)
			}
		}
	}
}

func preparePause(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("takes a folder, got %d arguments: it is started by podvm-agent", len(args))
	}
	if err := emptyRoot(args[0]); err != nil {
		slog.Warn("the pause process keeps the VM's root folder", "err", err)
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	ready := os.NewFile(3, "ready")
	defer ready.Close()
	_, err := ready.Write([]byte{1})
	return err
}

func emptyRoot(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("make mounts private", err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("pause", dir, "tmpfs", flags, "size=4k,mode=0555"); err != nil {
		return os.NewSyscallError("mount tmpfs", err)
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("unmount", err)
	}
	return os.NewSyscallError("remount", unix.Mount("", "/", "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
}

func dropPrivileges() error {
	if err := syscall.Setgroups(nil); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	if err := syscall.Setresgid(pauseID, pauseID, pauseID); err != nil {
		return os.NewSyscallError("setresgid", err)
	}
	return os.NewSyscallError("setresuid", syscall.Setresuid(pauseID, pauseID, pauseID))
}

// namespace returns the path by which other processes join a namespace of the pause
// process.
func namespace(pause *reaper.Child, kind string) string {
	return filepath.Join("/proc", strconv.Itoa(pause.PID), "ns", kind)
}
