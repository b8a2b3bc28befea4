// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// sysfs makes files below a folder, by path, and links from block/NAME/device.
func sysfs(t *testing.T, files, links map[string]string) string {
	t.Helper()
	sys := t.TempDir()
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(sys, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sys, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, device := range links {
		folder := filepath.Join(sys, "block", name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(sys, device), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(sys, device), filepath.Join(folder, "device")); err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

// TestFindOnAzure: units of other controllers, and serial numbers that look like units, are other disks.
func TestFindOnAzure(t *testing.T) {
	const system, data, more = "devices/f8b3781a", "devices/f8b3781b", "devices/f8b3781c"
	sys := sysfs(t, map[string]string{
		system + "/device_id":    "{f8b3781a-1e82-4818-a1c3-63d806ec15bb}\n",
		data + "/device_id":      "{f8b3781b-1e82-4818-a1c3-63d806ec15bb}\n",
		more + "/device_id":      "{f8b3781c-1e82-4818-a1c3-63d806ec15bb}\n",
		"devices/nvme0/model":    "MSFT NVMe Accelerator v1.0              \n",
		"devices/nvme1/model":    "Microsoft NVMe Direct Disk v2           \n",
		"block/nvme0n1/nsid":     "1\n",
		"block/nvme0n3/nsid":     "7\n", // its name does not say it
		"block/nvme1n1/nsid":     "7\n",
		"block/vda/serial":       "azure-lun-0\n",
		"block/vdb/serial":       "0\n",
		"devices/iscsi/ignored":  "",
		"block/loop0/size":       "0\n",
		"block/sdf/device/model": "Virtual Disk\n",
	}, map[string]string{
		"sda": system + "/host0/target0:0:0/0:0:0:0", "sdb": system + "/host0/target0:0:0/0:0:0:1",
		"sdc": data + "/host1/target1:0:0/1:0:0:0", "sdd": data + "/host1/target1:0:0/1:0:0:12", "sde": more + "/host2/target2:0:0/2:0:0:1",
		"sdg": "devices/iscsi/host3/target3:0:0/3:0:0:12", "nvme0n1": "devices/nvme0", "nvme0n3": "devices/nvme0", "nvme1n1": "devices/nvme1",
	})
	for serial, want := range map[string][]string{
		"azure-lun-0": {"/dev/sdc"}, "azure-lun-1": {"/dev/sde"}, "azure-lun-12": {"/dev/sdd"}, "azure-lun-5": {"/dev/nvme0n3"},
		"azure-lun-2": nil, "azure-lun--1": nil, "azure-lun-": nil, "0": {"/dev/vdb"},
	} {
		if got := Find(sys, "/dev", serial); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", serial, got, want)
		}
	}
}

// TestFindLoop: a loop device has the name of its file, unless that is deleted, and its device is made where nobody else does so.
func TestFindLoop(t *testing.T) {
	sys := sysfs(t, map[string]string{
		"block/loop0/size": "0\n", "block/loop1/loop/backing_file": "/disk/0123abcd\n", "block/loop1/dev": "7:1\n", "block/loop2/loop/backing_file": "/disk/4567 (deleted)\n",
	}, nil)
	dev := t.TempDir()
	for serial, want := range map[string][]string{"0123abcd": {filepath.Join(dev, "loop1")}, "4567": nil, "disk": nil} {
		if got := Find(sys, dev, serial); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", serial, got, want)
		}
	}
	var node unix.Stat_t
	if err := unix.Stat(filepath.Join(dev, "loop1"), &node); os.Geteuid() == 0 && (err != nil || node.Rdev != unix.Mkdev(7, 1)) {
		t.Errorf("the device: %v, %x", err, node.Rdev)
	}
}
