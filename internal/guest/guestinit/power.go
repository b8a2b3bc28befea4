// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"encoding/binary"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// powerOff ends the VM. It does not return.
func powerOff(con *console, reason string) {
	con.logf("powering off: %s", reason)
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		con.logf("power off: %v", err)
	}
	// The kernel panics when PID 1 ends, and panic=-1 ends the VM then.
	os.Exit(1)
}

// listenForShutdown gives the signals that end the VM: SIGTERM, ctrl-alt-del
// and the power button. Call it before the boot's first wait: the default
// action of any of them ends PID 1, and that is a kernel panic.
func listenForShutdown() <-chan os.Signal {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGTERM, syscall.SIGINT, syscall.SIGPWR)
	// Ctrl-alt-del then comes as SIGINT instead of a hard reset.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF)
	return sig
}

// Linux input-event-codes.h and input.h (struct input_event on 64 bit).
const (
	evKey          = 1
	keyPower       = 116
	inputEventSize = 24
	inputTypeAt    = 16
)

// watchPowerButton listens to every input device there is, so call it when the
// button's modules are loaded. It returns the number of devices.
func watchPowerButton(pressed func()) int {
	devices, _ := filepath.Glob("/dev/input/event*")
	n := 0
	for _, d := range devices {
		if f, err := os.Open(d); err == nil {
			n++
			go readKeys(f, pressed)
		}
	}
	return n
}

func readKeys(f *os.File, pressed func()) {
	defer f.Close()
	var ev [inputEventSize]byte
	for {
		if n, err := f.Read(ev[:]); err != nil || n < inputEventSize {
			return
		}
		kind := binary.LittleEndian.Uint16(ev[inputTypeAt:])
		code := binary.LittleEndian.Uint16(ev[inputTypeAt+2:])
		value := binary.LittleEndian.Uint32(ev[inputTypeAt+4:])
		if kind == evKey && code == keyPower && value == 1 {
			pressed()
		}
	}
}
