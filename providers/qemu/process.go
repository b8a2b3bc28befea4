// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process names one process for ever: ids are used again, but not with the
// same start time in the same boot.
type process struct {
	PID int `json:"pid"`
	// Start is field 22 of /proc/PID/stat, in clock ticks after boot.
	Start uint64 `json:"start"`
	// BootID is /proc/sys/kernel/random/boot_id.
	BootID string `json:"bootID"`
}

func identify(pid int) (*process, error) {
	start, _, err := procStat(pid)
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	return &process{PID: pid, Start: start, BootID: boot}, nil
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// procStat reads start time and state (proc(5), /proc/PID/stat: fields 22, 3).
func procStat(pid int) (start uint64, state string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// Field 2, the name, is in parentheses and may hold anything.
	_, rest, ok := bytes.Cut(data[bytes.LastIndexByte(data, '('):], []byte(") "))
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return 0, "", fmt.Errorf("/proc/%d/stat: unexpected content", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0], err
}

// alive reports whether the process still runs. A zombie does not.
func (p *process) alive() bool {
	if p == nil {
		return false
	}
	boot, err := bootID()
	if err != nil || boot != p.BootID {
		return false
	}
	start, state, err := procStat(p.PID)
	return err == nil && start == p.Start && state != "Z" && state != "X"
}

// open returns a handle that cannot come to mean another process, or -1 when
// the process is gone.
func (p *process) open() (int, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	// The handle is to whoever has the id now: look again who that is.
	if !p.alive() {
		unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}

// kill ends the process at once and waits until it has ended.
func (p *process) kill(ctx context.Context) error {
	fd, err := p.open()
	if fd < 0 || err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	return waitExit(ctx, fd)
}

// wait returns when the process has ended.
func (p *process) wait(ctx context.Context) error {
	fd, err := p.open()
	if fd < 0 || err != nil {
		return err
	}
	defer unix.Close(fd)
	return waitExit(ctx, fd)
}

func waitExit(ctx context.Context, pidfd int) error {
	const slice = 20 * time.Millisecond // how late the end of ctx is noticed
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(slice.Milliseconds()))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// findByArgument looks for a process that has arg on its command line: the
// QEMU of a provider that was killed before it wrote down whom it started.
func findByArgument(arg string) (*process, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(line), "\x00"), arg) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if p, err := identify(pid); err == nil && p.alive() {
			return p, nil
		}
	}
	return nil, nil
}
