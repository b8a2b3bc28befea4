// SPDX-License-Identifier: Apache-2.0

// Package blockdevice finds the disk of a volume and makes a file system on it, or checks the one
// it has: on a node for ordinary pods, and in the VM of a pod.
package blockdevice

import (
	"encoding/hex"
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
	paths := 0 // devices that are ways to one disk with a world wide name
	for _, disk := range disks {
		device, folder := filepath.Join(dev, disk.Name()), filepath.Join(sys, "block", disk.Name())
		switch {
		case hasName(folder, serial):
			if paths++; paths == 1 {
				devices = append(devices, throughMultipath(folder, device))
			}
		case read(folder, device) == serial:
			makeNode(folder, device)
			devices = append(devices, device)
		}
	}
	return devices
}

// serialOf returns the serial number of a disk by its folder in sysfs: virtio has it there, NVMe
// beside its controller, and SCSI in page 0x80 of its vital product data, after a header of four
// bytes (SPC-6). Google's persistent disks have their device names in its place, and loop devices the names of their files.
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
	if file := textOf(filepath.Join(folder, "loop/backing_file")); file != "" {
		return filepath.Base(file)
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

// hasName reports whether a SCSI disk has the world wide name that a serial is of.
func hasName(folder, serial string) bool {
	page, _ := os.ReadFile(filepath.Join(folder, "device/vpd_pg83"))
	naa := hex.EncodeToString([]byte(designatorIn(page, codeBinary, typeNAA)))
	return naa != "" && provider.SerialOfWWN(naa) == serial
}

// throughMultipath returns the device that multipathd has made of a disk's paths (dm-uuid of device-mapper-multipath), which
// are then not to be used themselves; without it device.
func throughMultipath(folder, device string) string {
	holders, _ := os.ReadDir(filepath.Join(folder, "holders"))
	for _, holder := range holders {
		if strings.HasPrefix(textOf(filepath.Join(folder, "holders", holder.Name(), "dm/uuid")), "mpath-") {
			return filepath.Join(filepath.Dir(device), holder.Name())
		}
	}
	return device
}

// textOf returns what a file of sysfs says; empty if it cannot be read.
func textOf(path string) string {
	data, _ := os.ReadFile(path)
	return strings.TrimSpace(string(data))
}

// Discover has the kernel ask all SCSI hosts for disks: a virtual Fibre Channel adapter does not say that it has another.
func Discover(sys string) error {
	hosts, _ := filepath.Glob(filepath.Join(sys, "class/fc_host/*"))
	var errs []error
	for _, host := range hosts {
		errs = append(errs, tell(filepath.Join(sys, "class/scsi_host", filepath.Base(host), "scan"), "- - -"))
	}
	return errors.Join(errs...)
}

// Rescan has the kernel ask a SCSI disk for its size: not every controller says that a disk has
// grown. Others say so by themselves. Of a disk of several paths each is asked; multipathd follows. An
// encrypted one grows with its disk.
func Rescan(sys, dev string) error { return rescan(filepath.Join(sys, "block", filepath.Base(dev))) }

func rescan(folder string) error {
	errs := []error{tell(filepath.Join(folder, "device/rescan"), "1")}
	slaves, _ := os.ReadDir(filepath.Join(folder, "slaves"))
	for _, slave := range slaves {
		errs = append(errs, rescan(filepath.Join(folder, "slaves", slave.Name())))
	}
	if strings.HasPrefix(textOf(filepath.Join(folder, "dm/name")), mappingPrefix) {
		errs = append(errs, growMapping(folder))
	}
	return errors.Join(errs...)
}

// tell writes into a file of sysfs if there is one.
func tell(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
