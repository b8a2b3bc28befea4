// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

// TestFindByWWN: a disk of several paths is one, and the device of multipathd if that runs; names of targets, of other lengths
// and with other digits are not the disk's.
func TestFindByWWN(t *testing.T) {
	const one, two = "600507681082018bc8000000000057e4", "600507681082018bc8000000000057e5"
	page := func(wwn string, kind byte) string {
		data, err := hex.DecodeString(wwn)
		if err != nil {
			t.Fatal(err)
		}
		return page83(designator(2, 1, "IBM     2145"), designator(1, kind, string(data)))
	}
	sys := sysfs(t, map[string]string{
		"block/sda/device/vpd_pg83": page(one, 3), "block/sdb/device/vpd_pg83": page(one, 3), "block/sdb/device/vpd_pg80": "\x00\x80\x00\x04same",
		"block/sdc/device/vpd_pg83": page(two, 3), "block/sdd/device/vpd_pg83": page(two, 3),
		"block/sdc/holders/dm-3/dm/uuid": "mpath-3" + two + "\n", "block/sdd/holders/dm-3/dm/uuid": "mpath-3" + two + "\n",
		"block/sde/device/vpd_pg83":      page("600507681082018bc8000000000057e6", 0x13), // of the target port
		"block/sdf/holders/dm-4/dm/uuid": "LVM-x\n", "block/sdf/device/vpd_pg83": page("600507681082018bc8000000000057e7", 3),
		"block/dm-3/dm/uuid": "mpath-3" + two + "\n", "block/sdg/device/vpd_pg83": "\x00\x83", "block/sdg/device/vpd_pg80": "\x00\x80\x00\x04same",
		"block/dm-3/slaves/sdc/device/rescan": "", "block/dm-3/slaves/sdd/device/rescan": "",
		"class/fc_host/host1/port_name": "x", "class/scsi_host/host1/scan": "", "class/scsi_host/host0/scan": "",
	}, nil)
	for serial, want := range map[string][]string{
		provider.SerialOfWWN(one): {"/dev/sda"}, provider.SerialOfWWN(two): {"/dev/dm-3"}, "018bc8000000000057e6": nil, "018bc8000000000057e7": {"/dev/sdf"},
		one: nil, "57e4": nil, "same": {"/dev/sdb", "/dev/sdg"},
	} {
		if got := Find(sys, "/dev", serial); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", serial, got, want)
		}
	}
	if err := Rescan(sys, "/dev/dm-3"); err != nil {
		t.Error(err)
	}
	if err := Discover(sys); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{
		"block/dm-3/slaves/sdc/device/rescan": "1", "block/dm-3/slaves/sdd/device/rescan": "1", "class/scsi_host/host1/scan": "- - -", "class/scsi_host/host0/scan": "",
	} {
		if got, err := os.ReadFile(filepath.Join(sys, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}
