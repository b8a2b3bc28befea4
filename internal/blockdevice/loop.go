// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// loopTries is how often somebody else may take the loop device that is free.
const loopTries = 20

// Loop makes a loop device of a file and returns it open: it ends when nobody has it open or mounted. The kernel keeps
// name, for [LoopName].
func Loop(sys, dev string, file *os.File, name string) (*os.File, error) {
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	copy(config.Info.File_name[:unix.LO_NAME_SIZE-1], name)
	return newLoop(sys, dev, &config)
}

// LoopName returns the name of a loop device, of which the kernel has kept up to 63 bytes.
func LoopName(loop *os.File) (string, error) {
	info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
	if err != nil {
		return "", fmt.Errorf("%s: %w", loop.Name(), err)
	}
	return strings.TrimRight(string(info.File_name[:]), "\x00"), nil
}

// RescanLoop has the kernel ask a loop device's file for its size.
func RescanLoop(device string) error {
	return onLoop(device, func(loop *os.File) error { return unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_CAPACITY, 0) })
}

// newLoop takes a free loop device.
func newLoop(sys, dev string, config *unix.LoopConfig) (*os.File, error) {
	control, err := os.OpenFile(filepath.Join(dev, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("a loop device is needed: %w", err)
	}
	defer control.Close()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("a free loop device: %w", err)
		}
		name := fmt.Sprintf("loop%d", n)
		device := filepath.Join(dev, name)
		makeNode(filepath.Join(sys, "block", name), device)
		loop, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), config); err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("%s: %w", device, err)
		}
	}
	return nil, fmt.Errorf("no loop device: somebody else took each of %d that were free", loopTries)
}

func onLoop(device string, do func(loop *os.File) error) error {
	loop, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := do(loop); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	return nil
}

// makeNode makes the device of a disk by its folder in sysfs, if it is not there: nobody does so in a container. Whoever
// opens it says what went wrong.
func makeNode(folder, device string) {
	var major, minor uint32
	if _, err := fmt.Sscanf(textOf(filepath.Join(folder, "dev")), "%d:%d", &major, &minor); err == nil {
		_ = unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor)))
	}
}
