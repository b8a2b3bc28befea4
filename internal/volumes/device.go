// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// device returns the path of the disk with a serial number.
func (n *node) device(serial string) (string, error) {
	if serial == "" {
		return "", invalid("publish_context has no %s", keySerial)
	}
	folders, err := filepath.Glob(filepath.Join(n.Sys, "block", "*"))
	if err != nil {
		return "", err
	}
	var found []string
	for _, folder := range folders {
		if serialOf(folder) == serial {
			found = append(found, filepath.Join(n.Dev, filepath.Base(folder)))
		}
	}
	switch {
	case len(found) > 1:
		return "", fmt.Errorf("%w: disks %s all have the serial number %s", errPrecondition, strings.Join(found, ", "), serial)
	case len(found) == 0:
		return "", fmt.Errorf("%w: no disk of this node has the serial number %s", provider.ErrUnavailable, serial)
	}
	if _, err := os.Stat(found[0]); err != nil {
		return "", fmt.Errorf("%w: the disk with the serial number %s: %v", provider.ErrUnavailable, serial, err)
	}
	return found[0], nil
}

// serialOf returns the serial number of a disk by its folder in sysfs: virtio has it there, NVMe
// beside its controller, and SCSI in page 0x80 of its vital product data, after a header of four
// bytes.
func serialOf(folder string) string {
	for _, name := range []string{"serial", "device/serial"} {
		if data, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	if data, err := os.ReadFile(filepath.Join(folder, "device/vpd_pg80")); err == nil && len(data) > 4 {
		return strings.TrimSpace(strings.Trim(string(data[4:]), "\x00"))
	}
	return ""
}

// edge is how much of both ends of an empty disk is looked at. All file systems, partition tables,
// volume managers and databases have something there.
const edge = 1 << 20

// isEmpty reports whether both ends of a disk are zeros.
func isEmpty(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	length := min(edge, size)
	data := make([]byte, length)
	for _, offset := range []int64{0, size - length} {
		if _, err := f.ReadAt(data, offset); err != nil {
			return false, fmt.Errorf("read %s: %w", device, err)
		}
		if len(bytes.Trim(data, "\x00")) > 0 {
			return false, nil
		}
	}
	return true, nil
}
