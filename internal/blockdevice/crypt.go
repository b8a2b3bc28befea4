// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/luks"
)

// mapperControl is the device of the kernel's device mapper, which devtmpfs makes when the module is loaded.
const mapperControl = "/dev/mapper/control"

// Number of mapperControl (linux/miscdevice.h, linux/major.h).
const miscMajor, mapperMinor = 10, 236

// Of a device mapper's table, in bytes; see Documentation/admin-guide/device-mapper/dm-crypt.rst of Linux.
const (
	sectorSize   = 512
	cryptSectors = 8    // of the largest unit that is encrypted
	maxTable     = 4096 // more than one line with a key
	targetHead   = int(unsafe.Sizeof(unix.DmTargetSpec{}))
)

// mappingPrefix begins the names of mappings that grow with their disks.
const mappingPrefix = "outrigger-"

// NewEncryption returns that of a volume, by its name on this machine.
func NewEncryption(volume string, key []byte) *Encryption {
	return &Encryption{Name: MappingOf(volume), Key: key}
}

// MappingOf returns the name of a volume's mapping, within the kernel's 127 bytes.
func MappingOf(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return mappingPrefix + hex.EncodeToString(sum[:16])
}

// Encryption is what a volume is encrypted with.
type Encryption struct {
	// Name is that of the mapping, see [MappingOf].
	Name string
	// Key opens the disk, as cryptsetup's --key-file does.
	Key []byte
}

// EncryptOnce maps a disk to one that is encrypted with a random key, which nobody has but the kernel: without this
// machine's memory, what is written there cannot be read. What the disk had before is lost. Nobody may have the disk
// open for himself, as a mount has.
func EncryptOnce(name, dev string) (mapped string, err error) {
	// Not from crypto/rand, which may use what this process has had since before a saved VM was restored.
	key := make([]byte, luks.KeySize)
	defer clear(key)
	// The kernel gives up to 256 bytes whole (getrandom(2)).
	if _, err := unix.Getrandom(key, 0); err != nil {
		return "", fmt.Errorf("a random key: %w", err)
	}
	return mapCrypt(name, dev, &luks.Volume{Key: key, Sector: sectorSize})
}

// OpenEncrypted maps a disk with LUKS to what is in it. A mapping of the name that is there already stays, with this disk in it.
func OpenEncrypted(e *Encryption, dev string) (mapped string, err error) {
	file, err := os.Open(dev)
	if err != nil {
		return "", err
	}
	defer file.Close()
	v, err := luks.Open(file, e.Key)
	if err != nil {
		return "", err
	}
	defer clear(v.Key)
	return mapCrypt(e.Name, dev, v)
}

// mapCrypt makes a mapping without discards: they would show which blocks are in use.
func mapCrypt(name, dev string, v *luks.Volume) (mapped string, err error) {
	size, err := sizeOf(dev)
	if err != nil {
		return "", err
	}
	control, err := openMapper()
	if err != nil {
		return "", err
	}
	defer control.Close()
	number, err := mapper(control, unix.DM_DEV_CREATE, name, nil)
	fresh := err == nil
	if errors.Is(err, unix.EBUSY) { // there is one: of a process that was killed
		number, err = mapper(control, unix.DM_DEV_STATUS, name, nil)
	}
	if err != nil {
		return "", fmt.Errorf("map %s: %w", dev, err)
	}
	table := cryptTable(dev, v, size)
	defer clear(table)
	if err = loadTable(control, name, table); err != nil {
		if fresh {
			_, _ = mapper(control, unix.DM_DEV_REMOVE, name, nil)
		}
		return "", fmt.Errorf("the kernel cannot encrypt %s with dm-crypt and %s: %w", dev, luks.Cipher, err)
	}
	return pathOf(number), nil
}

func pathOf(number uint64) string { return fmt.Sprintf("/dev/dm-%d", unix.Minor(number)) }

func loadTable(control *os.File, name string, table []byte) error {
	if _, err := mapper(control, unix.DM_TABLE_LOAD, name, table); err != nil {
		return err
	}
	_, err := mapper(control, unix.DM_DEV_SUSPEND, name, nil) // which without a flag resumes
	return err
}

// openMapper opens the device mapper. Opening its device makes the kernel load it.
func openMapper() (*os.File, error) {
	if _, err := os.Stat(mapperControl); errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(os.MkdirAll(filepath.Dir(mapperControl), 0o755), unix.Mknod(mapperControl, unix.S_IFCHR|0o600, int(unix.Mkdev(miscMajor, mapperMinor))))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	control, err := os.OpenFile(mapperControl, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("the kernel cannot encrypt disks, it has no device mapper: %w", err)
	}
	return control, nil
}

// Mapped returns the device of a mapping; empty if there is none.
func Mapped(name string) (string, error) {
	control, err := os.OpenFile(mapperControl, os.O_RDWR, 0)
	if err != nil {
		return "", without(err)
	}
	defer control.Close()
	number, err := mapper(control, unix.DM_DEV_STATUS, name, nil)
	if err != nil {
		return "", without(err)
	}
	return pathOf(number), nil
}

// Unmap removes a mapping; that there is none is nil.
func Unmap(name string) error {
	control, err := os.OpenFile(mapperControl, os.O_RDWR, 0)
	if err != nil {
		return without(err)
	}
	defer control.Close()
	_, err = mapper(control, unix.DM_DEV_REMOVE, name, nil)
	return without(err)
}

// without returns nil for the errors of a kernel that has no such mapping, or no device mapper.
func without(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
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
func cryptTable(dev string, v *luks.Volume, size int64) []byte {
	// Room for all, so that no other copy of the key is made.
	text := make([]byte, 0, len(luks.Cipher)+hex.EncodedLen(len(v.Key))+len(dev)+64)
	text = hex.AppendEncode(append(text, luks.Cipher+" "...), v.Key)
	text = fmt.Appendf(text, " 0 %s %d", dev, v.Offset/sectorSize)
	if v.Sector != sectorSize {
		text = fmt.Appendf(text, " 1 sector_size:%d", v.Sector)
	}
	defer clear(text)
	return tableOf(uint64(size-v.Offset)/sectorSize/cryptSectors*cryptSectors, text)
}

// tableOf returns a table of so many sectors.
func tableOf(sectors uint64, text []byte) []byte {
	target := unix.DmTargetSpec{Length: sectors}
	copy(target.Target_type[:], "crypt")
	table := make([]byte, targetHead+len(text)+1)
	*(*unix.DmTargetSpec)(unsafe.Pointer(&table[0])) = target
	copy(table[targetHead:], text)
	return table
}

// growMapping makes an encrypted mapping as large as its disk, by its folder in sysfs. The key does not come into it:
// it is in the table that the kernel has.
func growMapping(folder string) error {
	disks, err := filepath.Glob(filepath.Join(folder, "slaves/*"))
	if err != nil || len(disks) != 1 {
		return fmt.Errorf("%d disks below an encrypted one: %w", len(disks), err)
	}
	size, err := strconv.ParseUint(textOf(filepath.Join(disks[0], "size")), 10, 64)
	if err != nil {
		return err
	}
	control, err := openMapper()
	if err != nil {
		return err
	}
	defer control.Close()
	name, message := textOf(filepath.Join(folder, "dm/name")), make([]byte, maxTable)
	defer clear(message)
	header := (*unix.DmIoctl)(unsafe.Pointer(&message[0]))
	if err := request(control, unix.DM_TABLE_STATUS, name, unix.DM_STATUS_TABLE_FLAG, message); err != nil {
		return err
	}
	at := message[min(int(header.Data_start), maxTable-targetHead):]
	text, _, _ := bytes.Cut(at[targetHead:], []byte{0})
	fields := bytes.Fields(text) // cipher, key, offset of the sectors' numbers, device, where the data begin, options
	if len(fields) < 5 {
		return errors.New("the kernel does not say how it encrypts")
	}
	begin, err := strconv.ParseUint(string(fields[4]), 10, 64)
	if err != nil {
		return err
	}
	had := (*unix.DmTargetSpec)(unsafe.Pointer(&at[0])).Length
	sectors := (max(size, begin) - begin) / cryptSectors * cryptSectors
	if sectors <= had {
		return nil
	}
	table := tableOf(sectors, text)
	defer clear(table)
	return loadTable(control, name, table)
}

// mapper makes one request of the device mapper and returns the device's number.
func mapper(control *os.File, command uintptr, name string, table []byte) (device uint64, err error) {
	const head = int(unsafe.Sizeof(unix.DmIoctl{}))
	message := make([]byte, head+len(table))
	defer clear(message)
	header := (*unix.DmIoctl)(unsafe.Pointer(&message[0]))
	if len(table) > 0 {
		header.Target_count = 1
		copy(message[head:], table)
	}
	err = request(control, command, name, 0, message)
	return header.Dev, err
}

// request sends a message, whose header it fills in. The kernel clears its copy, which may have a key (DM_SECURE_DATA_FLAG).
func request(control *os.File, command uintptr, name string, flags uint32, message []byte) error {
	header := (*unix.DmIoctl)(unsafe.Pointer(&message[0]))
	// Version 4 of the interface, the only one since Linux 2.6 (linux/dm-ioctl.h).
	header.Version = [3]uint32{4}
	header.Data_size, header.Data_start = uint32(len(message)), uint32(unsafe.Sizeof(*header))
	header.Flags = unix.DM_SECURE_DATA_FLAG | flags
	copy(header.Name[:len(header.Name)-1], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), command, uintptr(unsafe.Pointer(header))); errno != 0 {
		return errno
	}
	return nil
}
