// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How a guest on Compute Engine tells persistent disks from others, by vendor and model or by the NVMe controller
// (65-gce-disk-naming.rules and google_nvme_id of GoogleCloudPlatform/guest-configs). All disks of such a controller have
// its serial number.
const (
	googleVendor = "Google"
	googleModel  = "PersistentDisk"
	googleNVMe   = "nvme_card-pd"
)

// googleName returns the device name of a persistent disk, and whether it is one.
func googleName(folder, device string) (name string, is bool) {
	is = textOf(filepath.Join(folder, "device/vendor")) == googleVendor && textOf(filepath.Join(folder, "device/model")) == googleModel
	if is {
		page, _ := os.ReadFile(filepath.Join(folder, "device/vpd_pg83"))
		return strings.Trim(designatorIn(page, codeASCII, typeVendor), " \x00"), true
	}
	if textOf(filepath.Join(folder, "device/model")) != googleNVMe && textOf(filepath.Join(folder, "device/serial")) != googleNVMe {
		return "", false
	}
	number, err := strconv.ParseUint(textOf(filepath.Join(folder, "nsid")), 10, 32)
	if err != nil {
		return "", true
	}
	return namespaceName(identifyNamespace(device, uint32(number))), true
}

// Code sets and types of designators of a logical unit (SPC-6, "Device Identification VPD page").
const (
	codeBinary, codeASCII = 1, 2
	typeVendor, typeNAA   = 0, 3
)

// designatorIn returns the first of a code set and a type of page 0x83 of the vital product data: after a header of four
// bytes, designators have a header of four bytes each.
func designatorIn(page []byte, wantCode, wantType byte) string {
	for page = page[min(4, len(page)):]; len(page) >= 4; {
		codeSet, kind, size := page[0]&0x0f, page[1]&0x3f, int(page[3]) // the kind with what it is of: 0 is the unit
		page = page[4:]
		if size > len(page) {
			return ""
		}
		if codeSet == wantCode && kind == wantType {
			return string(page[:size])
		}
		page = page[size:]
	}
	return ""
}

const (
	ioctlNVMeAdmin  = 0xc0484e41 // NVME_IOCTL_ADMIN_CMD of linux/nvme_ioctl.h
	nvmeIdentify    = 0x06       // NVM Express Base Specification, "Identify command"
	identifySize    = 4096
	identifyVendors = 384 // where the vendor's part of the Identify Namespace data structure begins
)

// nvmeCommand is struct nvme_admin_cmd of linux/nvme_ioctl.h.
type nvmeCommand struct {
	opcode, flags          uint8
	_                      uint16
	namespace              uint32
	_, _                   uint32
	_                      uint64
	address                uintptr
	_, length              uint32
	_, _, _, _, _, _, _, _ uint32
}

// identifyNamespace asks an NVMe controller what a namespace is; nil if it does not say.
func identifyNamespace(device string, namespace uint32) []byte {
	file, err := os.Open(device)
	if err != nil {
		return nil
	}
	defer file.Close()
	data := make([]byte, identifySize)
	command := nvmeCommand{opcode: nvmeIdentify, namespace: namespace, address: uintptr(unsafe.Pointer(&data[0])), length: identifySize}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), ioctlNVMeAdmin, uintptr(unsafe.Pointer(&command))); errno != 0 {
		return nil
	}
	return data
}

// namespaceName returns the device name in Google's part of an Identify Namespace data structure, which is JSON.
func namespaceName(data []byte) string {
	if len(data) < identifySize {
		return ""
	}
	text, _, _ := bytes.Cut(data[identifyVendors:], []byte{0})
	var vendor struct {
		Name string `json:"device_name"`
	}
	_ = json.Unmarshal(text, &vendor) // else it has no name
	return vendor.Name
}
