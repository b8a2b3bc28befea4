// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
)

// logFIFO is in the bundle; containerd reads it and writes what comes to its
// own log.
const logFIFO = "log"

// fifo drops what nobody takes: a log must never hold up a pod. A reader that
// comes back after containerd's restart gets what still is in the pipe.
type fifo int

func (f fifo) Write(data []byte) (int, error) {
	if _, err := unix.Write(int(f), data); err != nil && err != unix.EAGAIN {
		return 0, err
	}
	return len(data), nil
}

// openLog opens containerd's FIFO for both directions, so that writes do not
// fail while containerd is down. A panic's trace goes there as well.
func openLog(debug bool) (*slog.Logger, error) {
	fd, err := unix.Open(logFIFO, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("containerd's log FIFO %q in the bundle: %w", logFIFO, err)
	}
	if err := unix.Dup3(fd, 2, 0); err != nil {
		return nil, fmt.Errorf("standard error to the log: %w", err)
	}
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(fifo(fd), &slog.HandlerOptions{Level: level})), nil
}
