// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/protocol/agent"
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

// prepare formats a disk that is empty and checks one that is not.
func (d *Disks) prepare(ctx context.Context, dev string) error {
	file, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	switch kind, err := contentOf(file, size); {
	case err != nil:
		return err
	case kind == hasExt4:
		file.Close()
		return check(ctx, dev)
	case kind == hasOther:
		return errors.New("it holds something that is not ext4; it is not formatted, since nobody said that its content may go")
	}
	d.Log("formatting an empty disk", "disk", dev, "bytes", size)
	return format(ctx, file, size)
}

type content int

const (
	isEmpty content = iota
	hasExt4
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

func format(ctx context.Context, file *os.File, size int64) error {
	mark := make([]byte, markSize)
	copy(mark, formatting)
	if err := writeMark(file, mark, size); err != nil {
		return err
	}
	blocks := strconv.FormatInt(size/markSize-1, 10)
	if err := run(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-b", strconv.Itoa(markSize), "-m", "0", "-E", "nodiscard", file.Name(), blocks); err != nil {
		return err
	}
	return writeMark(file, make([]byte, markSize), size)
}

func writeMark(file *os.File, mark []byte, size int64) error {
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

// grow brings a mounted file system to the size of its disk. The kernel asks for
// CAP_SYS_RESOURCE.
func grow(dev, point string) error {
	file, err := os.Open(dev)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var super [superLength]byte
	if _, err := file.ReadAt(super[:], superOffset); err != nil {
		return err
	}
	ends, isExt4 := endOf(super[:])
	if !isExt4 || size-ends < leastGrowth {
		return nil
	}
	want := uint64(size / blockOf(super[:]))
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

// syncAt writes out what was written to a mounted file system.
func syncAt(point string) error {
	dir, err := os.Open(point)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Syncfs(int(dir.Fd()))
}

// setGroup gives all files of a volume the pod's fsGroup; by the policy OnRootMismatch
// unless the volume's root has it.
func setGroup(point string, group *agent.FSGroup) error {
	if group == nil {
		return nil
	}
	gid := int(group.GroupId)
	var st unix.Stat_t
	if err := unix.Stat(point, &st); err != nil {
		return err
	}
	if group.GroupChangePolicy == agent.FSGroupChangePolicy_OnRootMismatch && int(st.Gid) == gid && st.Mode&unix.S_ISGID != 0 {
		return nil
	}
	root, err := os.OpenRoot(point)
	if err != nil {
		return err
	}
	defer root.Close()
	var folders []string
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			folders = append(folders, path) // the root last: with it the whole is done
			return nil
		}
		return setGroupOf(root, path, gid, e.Type()&fs.ModeSymlink != 0)
	})
	for i := len(folders) - 1; i >= 0 && err == nil; i-- {
		err = setGroupOf(root, filepath.Clean(folders[i]), gid, false)
	}
	return err
}

func setGroupOf(root *os.Root, path string, gid int, link bool) error {
	if err := root.Lchown(path, -1, gid); err != nil || link {
		return err
	}
	info, err := root.Lstat(path)
	if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		return err
	}
	mode := info.Mode() | 0o660
	if info.IsDir() {
		mode |= 0o110 | fs.ModeSetgid
	}
	return root.Chmod(path, mode)
}
