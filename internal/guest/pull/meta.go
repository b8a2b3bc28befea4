// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"archive/tar"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// xattrPrefix is how PAX headers name extended attributes.
const xattrPrefix = "SCHILY.xattr."

// fileMeta sets owner, mode and attributes of an open file. The owner goes
// first, since a change of it clears set-id bits and capabilities.
func fileMeta(fd int, hdr *tar.Header) error {
	if err := unix.Fchown(fd, hdr.Uid, hdr.Gid); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	if err := unix.Fchmod(fd, uint32(hdr.Mode)&0o7777); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	for key, value := range hdr.PAXRecords {
		name, ok := strings.CutPrefix(key, xattrPrefix)
		if !ok || !wantedXattr(name) {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil && err != unix.ENOTSUP {
			return fmt.Errorf("set attribute %s: %w", name, err)
		}
	}
	return nil
}

// wantedXattr leaves out what belongs to the machine rather than to the file:
// overlayfs's own marks would change what a container sees, labels and
// signatures are for another kernel.
func wantedXattr(name string) bool {
	return strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.") ||
		name == "security.capability" || strings.HasPrefix(name, "system.posix_acl_")
}

// nodeMeta is fileMeta for files that cannot be opened safely: links, devices, pipes.
func nodeMeta(parent int, base string, hdr *tar.Header) error {
	if err := unix.Fchownat(parent, base, hdr.Uid, hdr.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("fchownat", err)
	}
	if hdr.Typeflag != tar.TypeSymlink {
		// Ours since we made it a moment ago, and not a link.
		if err := unix.Fchmodat(parent, base, uint32(hdr.Mode)&0o7777, 0); err != nil {
			return os.NewSyscallError("fchmodat", err)
		}
	}
	return setTimes(parent, base, hdr.ModTime)
}

// setTimes works on the open file itself if base is empty.
func setTimes(fd int, base string, mtime time.Time) error {
	spec, err := unix.TimeToTimespec(mtime)
	if err != nil {
		return err
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if base == "" {
		flags = unix.AT_EMPTY_PATH
	}
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(fd, base, []unix.Timespec{spec, spec}, flags))
}
