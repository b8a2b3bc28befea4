// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/luks"
)

const (
	// A disk on which so many bytes at its beginning and at its end are 0 has no file
	// system, no partitions and no volume manager's or RAID's mark.
	emptyHead, emptyTail = 4 << 20, 1 << 20
	// formatting stands in the last markSize bytes of a disk while it is formatted, and the
	// file system ends before it: a disk of a killed VM is not taken for one with data.
	formatting = "outrigger: this disk is being formatted"
	markSize   = 4096
	// leastGrowth is what a disk has to have grown by, in bytes: more than markSize.
	leastGrowth = 1 << 20
	// maxToolOutput bounds what an error quotes of a tool, in bytes.
	maxToolOutput = 1024
)

// Of ext4's superblock, see Documentation/filesystems/ext4/super.rst of Linux.
const (
	superOffset = 1024
	superMagic  = 0x38
	superSize   = 0x04 // blocks, the lower 32 bits
	superLog    = 0x18 // log2 of the block's size, less 10
	superHigh   = 0x150
	superLength = 1024
	// maxLog is that of the largest block, 64 KiB.
	maxLog = 6
	// ioctlResize is EXT4_IOC_RESIZE_FS, _IOW('f', 16, __u64).
	ioctlResize = 0x40086610
)

// Errors of a disk that is not used as it is.
var (
	ErrContent   = errors.New("it has something that is not ext4, and is never formatted: use it as a block device, or erase it (blkdiscard, or dd of zeros)")
	ErrEncrypted = errors.New("it is encrypted with LUKS, and nothing says so: see the section on encrypted volumes in docs/volumes.md")
	ErrPlain     = errors.New("it is not encrypted, and its volume is to be: nothing encrypts what is there already")
	ErrKey       = luks.ErrKey
)

// Unusable reports whether an error is of a disk as it is, and of a key that is not its own: trying again does not help.
func Unusable(err error) bool {
	return slices.ContainsFunc([]error{ErrContent, ErrEncrypted, ErrPlain, ErrKey}, func(of error) bool { return errors.Is(err, of) })
}

// Prepare makes a disk one that can be mounted, and returns the device to mount: it formats one that is proven empty, of
// which it tells log, and checks the file system of another. One that formatting was cut short on counts as empty. With e the disk
// is encrypted, and the device is what is in it.
func Prepare(ctx context.Context, dev string, e *Encryption, log func(text string, args ...any)) (mount string, err error) {
	file, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	kind, err := contentOf(file, size)
	switch {
	case err != nil:
		return "", err
	case kind == hasLUKS && e == nil:
		return "", ErrEncrypted
	case kind == hasLUKS:
		if mount, err = OpenEncrypted(e, dev); err != nil {
			return "", err
		}
		return Prepare(ctx, mount, nil, log)
	case kind == hasExt4 && e != nil:
		return "", ErrPlain
	case kind == hasExt4:
		file.Close()
		if err := check(ctx, dev); err != nil {
			return "", err
		}
		return dev, growUnmounted(ctx, dev)
	case kind == hasOther:
		return "", ErrContent
	}
	if e != nil && size < luks.DataOffset+emptyHead+emptyTail {
		return "", fmt.Errorf("it has %d bytes, and an encrypted volume has at least %d MiB", size, (luks.DataOffset+emptyHead+emptyTail)>>20)
	}
	log("formatting an empty disk", "disk", dev, "bytes", size, "encrypted", e != nil)
	return format(ctx, file, e)
}

type content int

const (
	isEmpty content = iota
	hasExt4
	hasLUKS
	hasOther
)

func contentOf(file io.ReaderAt, size int64) (content, error) {
	if size < emptyHead+emptyTail {
		return 0, fmt.Errorf("it has %d bytes, and a volume has at least %d MiB", size, (emptyHead+emptyTail)>>20)
	}
	head, tail := make([]byte, emptyHead), make([]byte, emptyTail)
	if _, err := file.ReadAt(head, 0); err != nil {
		return 0, err
	}
	if _, err := file.ReadAt(tail, size-emptyTail); err != nil {
		return 0, err
	}
	// A file system that has grown over the mark's place is not looked for a mark: files are there.
	super := head[superOffset : superOffset+superLength]
	ends, isExt4 := endOf(super)
	marked := bytes.HasPrefix(tail[emptyTail-markSize:], []byte(formatting))
	switch {
	case marked && (!isExt4 || ends <= size-markSize):
		return isEmpty, nil
	case isExt4:
		return hasExt4, nil
	case luks.Is(head):
		return hasLUKS, nil
	case bytes.Count(head, []byte{0}) == len(head) && bytes.Count(tail, []byte{0}) == len(tail):
		return isEmpty, nil
	}
	return hasOther, nil
}

// endOf returns how many bytes a file system takes, by its superblock.
func endOf(super []byte) (bytes int64, isExt4 bool) {
	if binary.LittleEndian.Uint16(super[superMagic:]) != 0xef53 || binary.LittleEndian.Uint32(super[superLog:]) > maxLog {
		return 0, false
	}
	blocks := int64(binary.LittleEndian.Uint32(super[superSize:])) | int64(binary.LittleEndian.Uint32(super[superHigh:]))<<32
	return blocks * blockOf(super), true
}

func blockOf(super []byte) int64 { return 1024 << binary.LittleEndian.Uint32(super[superLog:]) }

func format(ctx context.Context, file *os.File, e *Encryption) (mount string, err error) {
	mark := make([]byte, markSize)
	copy(mark, formatting)
	if err := writeMark(file, mark); err != nil {
		return "", err
	}
	mount = file.Name()
	if e != nil {
		if err := errors.Join(luks.Format(file, e.Key), file.Sync()); err != nil {
			return "", err
		}
		if mount, err = OpenEncrypted(e, file.Name()); err != nil {
			return "", err
		}
	}
	size, err := sizeOf(mount)
	if err != nil {
		return "", err
	}
	blocks := strconv.FormatInt(size/markSize-1, 10) // without the last: the mark is there
	if err := run(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-b", strconv.Itoa(markSize), "-m", "0", "-E", "nodiscard", mount, blocks); err != nil {
		return "", err
	}
	return mount, writeMark(file, make([]byte, markSize))
}

func writeMark(file *os.File, mark []byte) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := file.WriteAt(mark, size-markSize); err != nil {
		return err
	}
	return file.Sync()
}

// check replays the journal and mends what can be mended without a loss.
func check(ctx context.Context, dev string) error {
	err := run(ctx, "e2fsck", "-p", dev)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // e2fsck(8): errors were corrected
		return nil
	}
	if err != nil {
		return fmt.Errorf("its file system is damaged, attach it to a machine and run e2fsck: %w", err)
	}
	return nil
}

func run(ctx context.Context, tool string, args ...string) error {
	out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.*q", tool, err, maxToolOutput, strings.TrimSpace(string(out)))
	}
	return nil
}

// Grow brings a mounted file system to the size of its disk. The kernel asks for
// CAP_SYS_RESOURCE.
func Grow(dev, point string) error {
	want, err := Blocks(dev)
	if err != nil || want == 0 {
		return err
	}
	dir, err := os.Open(point)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), ioctlResize, uintptr(unsafe.Pointer(&want))); errno != 0 {
		return errno
	}
	return nil
}

// growUnmounted brings a file system to the size of its disk where [Grow] may not, as in a container.
func growUnmounted(ctx context.Context, dev string) error {
	header, caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &caps[0]); err != nil || caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		return err
	}
	blocks, err := Blocks(dev)
	if err != nil || blocks == 0 {
		return err
	}
	return run(ctx, "resize2fs", "-f", dev) // check has been here
}

// Blocks returns how many blocks the file system of a disk can have; 0 if it has them, except for what
// [Prepare] leaves free at the end, or if there is none.
func Blocks(dev string) (uint64, error) {
	file, err := os.Open(dev)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	var super [superLength]byte
	if _, err := file.ReadAt(super[:], superOffset); err != nil {
		return 0, err
	}
	ends, isExt4 := endOf(super[:])
	if !isExt4 || size-ends < leastGrowth {
		return 0, nil
	}
	return uint64(size / blockOf(super[:])), nil
}
