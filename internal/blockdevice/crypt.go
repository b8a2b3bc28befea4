// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapperControl is the device of the kernel's device mapper, which devtmpfs makes when the module is loaded.
const mapperControl = "/dev/mapper/control"

// Of a device mapper's table, see Documentation/admin-guide/device-mapper/dm-crypt.rst of Linux.
const (
	sectorSize = 512
	// A key of 64 bytes are two of AES-256, of which XTS needs two.
	cryptCipher, cryptKeySize = "aes-xts-plain64", 64
)

// EncryptOnce maps a disk to one that is encrypted with a random key, which nobody has but the kernel: without this
// machine's memory, what is written there cannot be read. What the disk had before is lost. The mapping has no
// discards: they would show which blocks are in use. Nobody may have the disk open for himself, as a mount has.
func EncryptOnce(name, dev string) (mapped string, err error) {
	// Not from crypto/rand, which may use what this process has had since before a saved VM was restored.
	key := make([]byte, cryptKeySize)
	defer clear(key)
	// The kernel gives up to 256 bytes whole (getrandom(2)).
	if _, err := unix.Getrandom(key, 0); err != nil {
		return "", fmt.Errorf("a random key: %w", err)
	}
	size, err := sizeOf(dev)
	if err != nil {
		return "", err
	}
	control, err := os.OpenFile(mapperControl, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("the kernel cannot encrypt disks, it has no device mapper: %w", err)
	}
	defer control.Close()
	number, err := mapper(control, unix.DM_DEV_CREATE, name, nil)
	if err != nil {
		return "", fmt.Errorf("map %s: %w", dev, err)
	}
	table := cryptTable(dev, uint64(size/sectorSize), key)
	defer clear(table)
	if _, err = mapper(control, unix.DM_TABLE_LOAD, name, table); err == nil {
		_, err = mapper(control, unix.DM_DEV_SUSPEND, name, nil) // which without a flag resumes
	}
	if err != nil {
		_, _ = mapper(control, unix.DM_DEV_REMOVE, name, nil)
		return "", fmt.Errorf("the kernel cannot encrypt %s with dm-crypt and %s: %w", dev, cryptCipher, err)
	}
	return fmt.Sprintf("/dev/dm-%d", unix.Minor(number)), nil
}

func sizeOf(dev string) (int64, error) {
	file, err := os.Open(dev)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return file.Seek(0, io.SeekEnd)
}

// cryptTable returns a table of one line, as the kernel wants it: a header, parameters as text, a zero.
func cryptTable(dev string, sectors uint64, key []byte) []byte {
	target := unix.DmTargetSpec{Length: sectors}
	copy(target.Target_type[:], "crypt")
	head := int(unsafe.Sizeof(target))
	// The capacity is that of the whole, so that no other copy of the key is made.
	table := make([]byte, head, head+len(cryptCipher)+hex.EncodedLen(len(key))+len(dev)+16)
	*(*unix.DmTargetSpec)(unsafe.Pointer(&table[0])) = target
	table = append(table, cryptCipher+" "...)
	table = hex.AppendEncode(table, key)
	return append(table, " 0 "+dev+" 0\x00"...)
}

// mapper makes one request of the device mapper and returns the device's number. The kernel clears its copy of the
// table, which has the key (DM_SECURE_DATA_FLAG).
func mapper(control *os.File, request uintptr, name string, table []byte) (device uint64, err error) {
	const head = int(unsafe.Sizeof(unix.DmIoctl{}))
	message := make([]byte, head+len(table))
	defer clear(message)
	header := (*unix.DmIoctl)(unsafe.Pointer(&message[0]))
	// Version 4 of the interface, the only one since Linux 2.6 (linux/dm-ioctl.h).
	header.Version = [3]uint32{4}
	header.Data_size, header.Data_start = uint32(len(message)), uint32(head)
	header.Flags = unix.DM_SECURE_DATA_FLAG
	copy(header.Name[:len(header.Name)-1], name)
	if len(table) > 0 {
		header.Target_count = 1
		copy(message[head:], table)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), request, uintptr(unsafe.Pointer(header))); errno != 0 {
		return 0, errno
	}
	return header.Dev, nil
}
