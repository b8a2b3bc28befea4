// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// socketDir is where shims of containerd have their sockets.
const socketDir = "/run/containerd/s"

// Files in a bundle that containerd 1.x and `delete` read.
const (
	addressFile = "address"
	pidFile     = "shim.pid"
)

// socketPath returns the same path for all containers of a pod, so that they find its
// shim.
func socketPath(containerd, namespace, sandbox string) string {
	sum := sha256.Sum256([]byte(filepath.Join(containerd, namespace, sandbox)))
	return filepath.Join(socketDir, hex.EncodeToString(sum[:]))
}

// start returns the address of the pod's shim, and starts that if the
// container is the pod's first.
func (a *arguments) start() (string, error) {
	folder, err := a.folder()
	if err != nil {
		return "", err
	}
	b, err := readBundle(a.id, folder)
	if err != nil {
		return "", err
	}
	path := socketPath(a.address, a.namespace, b.sandbox)
	switch serving := canConnect(path); {
	case serving && b.ownsVM():
		return "", fmt.Errorf("a shim of container %s is running already", a.id)
	case !serving && !b.ownsVM():
		return "", fmt.Errorf("sandbox %s has no shim (any more), so container %s cannot be added to it", b.sandbox, a.id)
	case !serving:
		if err := a.spawn(path, folder); err != nil {
			return "", err
		}
	}
	address := "unix://" + path
	return address, replaceFile(filepath.Join(folder, addressFile), []byte(address))
}

func canConnect(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// spawn starts the process that serves. It gets the socket listening already:
// containerd dials as soon as it knows the address.
func (a *arguments) spawn(path, folder string) error {
	listener, err := listen(path)
	if err != nil {
		return err
	}
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := a.daemon(file, folder)
	if err := cmd.Start(); err != nil {
		os.Remove(path)
		return fmt.Errorf("starting the pod's shim: %w", err)
	}
	shareOOMScore(cmd.Process.Pid)
	return replaceFile(filepath.Join(folder, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)))
}

func listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(socketDir, 0o711); err != nil {
		return nil, err
	}
	// Nobody serves it: it is left from a shim that was killed.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return listener, os.Chmod(path, 0o600)
}

// daemon returns the command of the shim's daemon. It has a process group of its own,
// so that signals to containerd's group do not reach it, and no standard streams.
func (a *arguments) daemon(socket *os.File, folder string) *exec.Cmd {
	args := []string{"-namespace", a.namespace, "-id", a.id, "-address", a.address}
	if a.debug {
		args = append(args, "-debug")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = Name
	cmd.Dir = folder
	cmd.ExtraFiles = []*os.File{socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// shareOOMScore makes the kernel spare the shim as it spares containerd, our
// parent. Without the privilege it stays as inherited.
func shareOOMScore(pid int) {
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", os.Getppid()))
	if err != nil {
		return
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(score)))
	if err != nil {
		return
	}
	os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(min(n+1, 1000))), 0o644)
}
