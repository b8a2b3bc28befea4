// SPDX-License-Identifier: Apache-2.0

// Package procid names a process so that a number that was given to another
// one meanwhile is not taken for it.
package procid

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// ID is one process of one boot. The zero ID is not a process.
type ID struct {
	PID int `json:"pid,omitempty"`
	// Start is the time of its start in clock ticks since boot (proc(5), stat
	// field 22).
	Start uint64 `json:"start,omitempty"`
	// Boot is the kernel's boot id.
	Boot string `json:"boot,omitempty"`
}

// Self returns the ID of this process.
func Self() ID {
	id, err := Of(os.Getpid())
	if err != nil { // without /proc there is no way to tell processes apart
		panic(err)
	}
	return id
}

// Of reads the identity of a running process.
func Of(pid int) (ID, error) {
	start, _, err := stat(pid)
	if err != nil {
		return ID{}, err
	}
	boot, err := Boot()
	return ID{PID: pid, Start: start, Boot: boot}, err
}

// Boot returns the id that the kernel has given to this boot of the machine.
func Boot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// Alive reports whether the process still runs; a zombie does not.
func (id ID) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	if boot, err := Boot(); err == nil && boot != id.Boot {
		return false
	}
	start, state, err := stat(id.PID)
	if err != nil { // what cannot be read is not gone
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	return start == id.Start && state != 'Z' && state != 'X'
}

// Signal signals the process if it is still the same; it is os.ErrProcessDone if not.
// The pidfd closes the gap between looking and signalling.
func (id ID) Signal(sig syscall.Signal) error {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return err
	}
	defer p.Release()
	if !id.Alive() {
		return os.ErrProcessDone
	}
	return p.Signal(sig)
}

// Stop asks the process to end, kills it after the grace period, and returns
// when it is gone. A process that is gone already is success.
func (id ID) Stop(grace time.Duration) error {
	if err := id.Signal(syscall.SIGTERM); err != nil || id.WaitGone(grace) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if id.Kill(ctx) != nil {
		return fmt.Errorf("process %d does not end, not even by SIGKILL", id.PID)
	}
	return nil
}

// Kill ends the process at once and returns when it is gone.
func (id ID) Kill(ctx context.Context) error {
	if err := id.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", id.PID, err)
	}
	return id.Wait(ctx)
}

// Wait returns when the process is gone, or the cause of ctx's end.
func (id ID) Wait(ctx context.Context) error {
	const often = 2 * time.Millisecond
	for id.Alive() {
		if err := poll.Sleep(ctx, often); err != nil {
			return err
		}
	}
	return nil
}

// WaitGone reports whether the process ended within d.
func (id ID) WaitGone(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return id.Wait(ctx) == nil
}

func stat(pid int) (start uint64, state byte, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The command in brackets may contain anything, brackets too.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("/proc/%d/stat: unknown format", pid)
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, fields[0][0], err
}
