// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"errors"
	"fmt"

	"github.com/outrigger/outrigger/provider/kit/intercept"
)

// checkDisk is check for the calls about disks and snapshots.
func checkDisk(call intercept.Call) error {
	switch call.Method {
	case "CreateDisk":
		return errors.Join(checkDiskKey(call.Key), call.Disk.Check())
	case "GetDisk", "DeleteDisk":
		return checkID("disk", call.DiskID)
	case "AttachDisk", "DetachDisk":
		return errors.Join(checkID("disk", call.DiskID), checkID("instance", call.InstanceID))
	case "ResizeDisk":
		if call.Bytes <= 0 {
			return fmt.Errorf("a disk of %d bytes", call.Bytes)
		}
		return checkID("disk", call.DiskID)
	case "CreateSnapshot":
		return errors.Join(checkDiskKey(call.Key), checkID("disk", call.DiskID))
	case "GetSnapshot", "DeleteSnapshot":
		return checkID("snapshot", call.SnapshotID)
	}
	return nil
}

func checkID(of, id string) error {
	if id == "" {
		return fmt.Errorf("the %s id is empty", of)
	}
	return nil
}

func checkDiskKey(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case !sandboxID.MatchString(key):
		return fmt.Errorf("the key %.80q is not 1 to 64 letters, digits, '-', '_' and '.'", key)
	}
	return nil
}
