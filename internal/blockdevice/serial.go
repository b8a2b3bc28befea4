// SPDX-License-Identifier: Apache-2.0

// Package blockdevice finds the disk of a volume and makes a file system on it, or checks the one
// it has: on a node for ordinary pods, and in the VM of a pod.
package blockdevice

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// Find returns the devices of the disks that an attachment's serial is of. sys is /sys and dev is /dev.
func Find(sys, dev, serial string) (devices []string) {
	read := serialOf
	if lun, ok := strings.CutPrefix(serial, provider.SerialLUN); ok && lun != "" {
		read, serial = lunOf, lun
	}
	disks, _ := os.ReadDir(filepath.Join(sys, "block"))
	for _, disk := range disks {
		device := filepath.Join(dev, disk.Name())
		if read(filepath.Join(sys, "block", disk.Name()), device) == serial {
			devices = append(devices, device)
		}
	}
	return devices
}

// serialOf returns the serial number of a disk by its folder in sysfs: virtio has it there, NVMe
// beside its controller, and SCSI in page 0x80 of its vital product data, after a header of four
// bytes (SPC-6). Google's persistent disks have their device names in its place.
func serialOf(folder, device string) string {
	if name, is := googleName(folder, device); is {
		return name
	}
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

// How a guest on Azure tells data disks from others (80-azure-disk.rules of Azure/azure-vm-utils, and
// 66-azure-storage.rules of Azure/WALinuxAgent): the controllers of Hyper-V that have them, and the model of NVMe disks
// that are not local to the host, of which namespace 1 is the OS disk and namespace N+2 has logical unit number N.
var azureControllers = []string{
	"{f8b3781b-1e82-4818-a1c3-63d806ec15bb}", "{f8b3781c-1e82-4818-a1c3-63d806ec15bb}", "{f8b3781d-1e82-4818-a1c3-63d806ec15bb}",
}

const (
	azureNVMe      = "MSFT NVMe Accelerator v1.0"
	azureNVMeShift = 2
)

// lunOf returns the logical unit number of a data disk of an Azure VM by its folder in sysfs; empty for other disks.
func lunOf(folder, _ string) string {
	if textOf(filepath.Join(folder, "device/model")) == azureNVMe {
		if n, err := strconv.Atoi(textOf(filepath.Join(folder, "nsid"))); err == nil && n >= azureNVMeShift {
			return strconv.Itoa(n - azureNVMeShift)
		}
		return ""
	}
	// .../CONTROLLER/host0/target0:0:0/0:0:0:LUN
	device, err := filepath.EvalSymlinks(filepath.Join(folder, "device"))
	address := strings.Split(filepath.Base(device), ":")
	if err != nil || len(address) != 4 || !slices.Contains(azureControllers, textOf(filepath.Join(device, "../../../device_id"))) {
		return ""
	}
	return address[3]
}

// textOf returns what a file of sysfs says; empty if it cannot be read.
func textOf(path string) string {
	data, _ := os.ReadFile(path)
	return strings.TrimSpace(string(data))
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
