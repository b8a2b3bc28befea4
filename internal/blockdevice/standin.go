// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// standInBytes is the size of a stand-in: the smallest that losetup takes without a warning is a sector.
const standInBytes = 4096

// standInTries is how often somebody else may take the loop device that is free.
const standInTries = 20

// StandIn returns the block device that stands for a disk which this machine does not have, and makes it if there is
// none: a loop device of a page of memory. The kernel keeps its name, so that a killed process leaves none that
// nobody knows.
func StandIn(sys, dev, of string) (device string, err error) {
	device, err = findStandIn(sys, dev, of)
	if device != "" || err != nil {
		return device, err
	}
	memory, err := unix.MemfdCreate("stand-in", unix.MFD_CLOEXEC)
	if err != nil {
		return "", os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(memory)
	if err := unix.Ftruncate(memory, standInBytes); err != nil {
		return "", os.NewSyscallError("ftruncate", err)
	}
	config := unix.LoopConfig{Fd: uint32(memory)}
	copy(config.Info.File_name[:], standInName(of))
	control, err := os.OpenFile(filepath.Join(dev, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("a stand-in needs a loop device: %w", err)
	}
	defer control.Close()
	for range standInTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("a free loop device: %w", err)
		}
		device = filepath.Join(dev, fmt.Sprintf("loop%d", n))
		err = onLoop(device, func(fd int) error { return unix.IoctlLoopConfigure(fd, &config) })
		if !errors.Is(err, unix.EBUSY) {
			return device, err
		}
	}
	return "", fmt.Errorf("no loop device: somebody else took each of %d that were free", standInTries)
}

// RemoveStandIn removes a stand-in; that there is none is nil.
func RemoveStandIn(sys, dev, of string) error {
	device, err := findStandIn(sys, dev, of)
	if device == "" || err != nil {
		return err
	}
	return onLoop(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
}

func findStandIn(sys, dev, of string) (string, error) {
	loops, _ := filepath.Glob(filepath.Join(sys, "block/loop*/loop")) // those that are in use
	for _, loop := range loops {
		device := filepath.Join(dev, filepath.Base(filepath.Dir(loop)))
		var info *unix.LoopInfo64
		err := onLoop(device, func(fd int) (err error) { info, err = unix.IoctlLoopGetStatus64(fd); return err })
		switch {
		case errors.Is(err, unix.ENXIO), errors.Is(err, os.ErrNotExist): // it has ended meanwhile
		case err != nil:
			return "", err
		case strings.TrimRight(string(info.File_name[:]), "\x00") == standInName(of):
			return device, nil
		}
	}
	return "", nil
}

// standInName fits into the kernel's name of a loop device's file, which has 64 bytes (LO_NAME_SIZE).
func standInName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return fmt.Sprintf("outrigger-%x", sum[:16])
}

func onLoop(device string, do func(fd int) error) error {
	loop, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := do(int(loop.Fd())); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	return nil
}
