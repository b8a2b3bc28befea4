// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// standInBytes is the size of a stand-in: the smallest that losetup takes without a warning is a sector.
const standInBytes = 4096

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
	loop, err := newLoop(sys, dev, &config)
	if err != nil {
		return "", err
	}
	return loop.Name(), loop.Close()
}

// RemoveStandIn removes a stand-in; that there is none is nil.
func RemoveStandIn(sys, dev, of string) error {
	device, err := findStandIn(sys, dev, of)
	if device == "" || err != nil {
		return err
	}
	return onLoop(device, func(loop *os.File) error { return unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0) })
}

func findStandIn(sys, dev, of string) (string, error) {
	loops, _ := filepath.Glob(filepath.Join(sys, "block/loop*/loop")) // those that are in use
	for _, loop := range loops {
		device := filepath.Join(dev, filepath.Base(filepath.Dir(loop)))
		name := ""
		err := onLoop(device, func(loop *os.File) (err error) { name, err = LoopName(loop); return err })
		switch {
		case errors.Is(err, unix.ENXIO), errors.Is(err, os.ErrNotExist): // it has ended meanwhile
		case err != nil:
			return "", err
		case name == standInName(of):
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
