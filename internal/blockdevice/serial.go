// SPDX-License-Identifier: Apache-2.0

// Package blockdevice finds the disk of a volume and makes a file system on it, or checks the one
// it has: on a node for ordinary pods, and in the VM of a pod.
package blockdevice

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Find returns the devices of the disks with a serial number. sys is /sys and dev is /dev.
func Find(sys, dev, serial string) (devices []string) {
	disks, _ := os.ReadDir(filepath.Join(sys, "block"))
	for _, disk := range disks {
		if serialOf(filepath.Join(sys, "block", disk.Name())) == serial {
			devices = append(devices, filepath.Join(dev, disk.Name()))
		}
	}
	return devices
}

// serialOf returns the serial number of a disk by its folder in sysfs: virtio has it there, NVMe
// beside its controller, and SCSI in page 0x80 of its vital product data, after a header of four
// bytes (SPC-6).
func serialOf(folder string) string {
	for _, name := range []string{"serial", "device/serial"} {
		if data, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	if page, err := os.ReadFile(filepath.Join(folder, "device/vpd_pg80")); err == nil && len(page) > 4 {
		return strings.TrimSpace(strings.Trim(string(page[4:]), "\x00"))
	}
	return ""
}

// Rescan has the kernel ask a SCSI disk for its size: not every controller says that a disk has
// grown. Others say so by themselves.
func Rescan(sys, dev string) error {
	rescan, err := os.OpenFile(filepath.Join(sys, "block", filepath.Base(dev), "device/rescan"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = rescan.WriteString("1")
	return errors.Join(err, rescan.Close())
}
