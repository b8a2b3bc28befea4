// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	seedDir        = "/media/cidata"
	configDriveDir = "/media/config-2"
	scratchDir     = "/run/kata-containers"
)

// Where file systems keep their labels.
const (
	// ECMA-119 8.4: primary volume descriptor at sector 16, volume identifier at byte 40.
	isoDescriptor = 16 * 2048
	isoLabel      = 40
	isoLabelLen   = 32
	// Linux fs/ext4/ext4.h: superblock at 1024, s_magic at 0x38, s_volume_name at 0x78.
	extSuper    = 1024
	extMagic    = 0x38
	extLabel    = 0x78
	extLabelLen = 16
)

// disk is a block device with what identifies it.
type disk struct {
	dev    string // /dev/NAME
	serial string // virtio-blk serial number
	fstype string // iso9660, ext4 or ""
	label  string
}

// listDisks looks at all disks and CD drives that hold a medium.
func listDisks(sysBlock, dev string) []disk {
	entries, _ := os.ReadDir(sysBlock)
	var list []disk
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram") {
			continue
		}
		d := disk{dev: filepath.Join(dev, name)}
		serial, _ := os.ReadFile(filepath.Join(sysBlock, name, "serial"))
		d.serial = strings.TrimSpace(string(serial))
		d.fstype, d.label = probeLabel(d.dev)
		list = append(list, d)
	}
	return list
}

// probeLabel reads the file system's label; it is empty for an unreadable or
// unknown disk.
func probeLabel(dev string) (fstype, label string) {
	f, err := os.Open(dev)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	var super [256]byte
	if _, err := f.ReadAt(super[:], extSuper); err == nil && super[extMagic] == 0x53 && super[extMagic+1] == 0xef {
		name, _, _ := bytes.Cut(super[extLabel:extLabel+extLabelLen], []byte{0})
		return "ext4", string(name)
	}
	var volume [isoLabel + isoLabelLen]byte
	if _, err := f.ReadAt(volume[:], isoDescriptor); err == nil && string(volume[1:6]) == "CD001" {
		return "iso9660", strings.TrimRight(string(volume[isoLabel:]), " \x00")
	}
	return "", ""
}

// isSeed follows NoCloud: an ISO labelled cidata, in either case; the serial
// number lets a provider say so too.
func (d disk) isSeed() bool {
	return d.fstype == "iso9660" && (strings.EqualFold(d.label, "cidata") || d.serial == "cidata")
}

// isConfigDrive follows "Config drives" in Nova's user guide, whose usual
// format is ISO 9660.
func (d disk) isConfigDrive() bool {
	return d.fstype == "iso9660" && strings.EqualFold(d.label, "config-2")
}

func (d disk) isScratch() bool {
	return d.fstype == "ext4" && (d.label == "scratch" || d.serial == "scratch")
}

// withSerial returns the disks that have a serial number, or all if none has it. Where a
// provider says by it which disk is what, the others are those of pods: they hold what
// pods have written, labels too, and may be there before the seed is looked for.
func withSerial(disks []disk, serial string) []disk {
	var list []disk
	for _, d := range disks {
		if d.serial == serial {
			list = append(list, d)
		}
	}
	if list == nil {
		return disks
	}
	return list
}

// mountSeed mounts the NoCloud seed or OpenStack's config drive and returns
// where; nowhere if there is none.
func mountSeed(disks []disk) (dir string, err error) {
	for _, d := range withSerial(disks, "cidata") {
		switch {
		case d.isSeed():
			dir = seedDir
		case d.isConfigDrive():
			dir = configDriveDir
		default:
			continue
		}
		m := mount{d.dev, dir, "iso9660", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""}
		return dir, m.mount()
	}
	return "", nil
}

// mountScratch puts the agent's folder, which holds the container images, on
// the scratch disk if there is one. A blank scratch disk is an error, since
// the image has nothing to format it with.
func mountScratch(disks []disk) (bool, error) {
	for _, d := range withSerial(disks, "scratch") {
		if d.isScratch() {
			m := mount{d.dev, scratchDir, "ext4", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME, ""}
			return true, m.mount()
		}
		if d.serial == "scratch" {
			return false, fmt.Errorf("scratch disk %s holds no ext4 file system", d.dev)
		}
	}
	return false, nil
}
