// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// designator is one of page 0x83.
func designator(codeSet, kind byte, text string) string {
	return string([]byte{codeSet, kind, 0, byte(len(text))}) + text
}

func page83(designators ...string) string {
	all := strings.Join(designators, "")
	return string([]byte{0, 0x83, byte(len(all) >> 8), byte(len(all))}) + all
}

// TestFindOnGoogle: persistent disks are found by their device names, and by no serial number of their controller.
func TestFindOnGoogle(t *testing.T) {
	const name, naa = "pd-0123456789abcdef", "\x60\x00\x00\x00\x00\x00\x00\x01"
	sys := sysfs(t, map[string]string{
		"block/sda/device/vendor": "Google  \n", "block/sda/device/model": "PersistentDisk  \n", "block/sda/device/vpd_pg83": page83(designator(2, 0, "persistent-disk-0")),
		"block/sdb/device/vendor": "Google  \n", "block/sdb/device/model": "PersistentDisk  \n",
		"block/sdb/device/vpd_pg83": page83(designator(1, 3, naa), designator(2, 1, "Google  "+name), designator(2, 0x10, "port"), designator(2, 0, name)),
		"block/sdb/device/vpd_pg80": "\x00\x80\x00\x02no",
		"block/sdc/device/vendor":   "Google  \n", "block/sdc/device/model": "EphemeralDisk   \n", "block/sdc/device/vpd_pg83": page83(designator(2, 0, name)),
		"block/sdd/device/vendor": "Google  \n", "block/sdd/device/model": "PersistentDisk  \n", "block/sdd/device/vpd_pg83": page83(designator(2, 0, name))[:12],
		"block/sde/device/vendor": "Google  \n", "block/sde/device/model": "PersistentDisk  \n",
		"block/nvme0n1/device/model": "nvme_card-pd\n", "block/nvme0n1/device/serial": "nvme_card-pd\n", "block/nvme0n1/nsid": "1\n",
	}, nil)
	for serial, want := range map[string][]string{
		name: {"/dev/sdb"}, "persistent-disk-0": {"/dev/sda"}, "nvme_card-pd": nil, "no": nil, "port": nil,
	} {
		if got := Find(sys, "/dev", serial); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", serial, got, want)
		}
	}
}

func TestNamespaceName(t *testing.T) {
	for text, want := range map[string]string{
		`{"device_name":"pd-0123456789abcdef","disk_type":"PERSISTENT"}`: "pd-0123456789abcdef",
		`{"disk_type":"PERSISTENT"}`:                                     "", "": "", `{"device_name":`: "",
	} {
		data := make([]byte, identifySize)
		copy(data[identifyVendors:], text)
		if got := namespaceName(data); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := namespaceName(nil); got != "" {
		t.Errorf("of a controller that says nothing: %q", got)
	}
	if size := unsafe.Sizeof(nvmeCommand{}); size != ioctlNVMeAdmin>>16&0x3fff {
		t.Errorf("a command of %d bytes, want those of the ioctl's number", size)
	}
}
