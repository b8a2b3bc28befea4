// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"golang.org/x/sys/unix"
)

// scratchMarker is the node's request for an encrypted scratch disk. While it is there, the agent starts no pod.
const scratchMarker = "/run/peerpod/scratch-space.marker"

// AlwaysEncryptScratch is of images whose pods do not trust who has the disk: whether it is encrypted is not for the node to say, and
// nothing that it has before the boot is used.
var AlwaysEncryptScratch bool

// encryptScratch does what the node asks with scratchMarker, and removes it; else it writes there why not.
func (g *guest) encryptScratch() error {
	if _, err := os.Stat(scratchMarker); errors.Is(err, fs.ErrNotExist) && !AlwaysEncryptScratch {
		return nil
	}
	dev, err := scratchToErase(g.disks)
	if err == nil {
		err = g.replaceScratch(dev)
	}
	if err != nil {
		return errors.Join(err, os.WriteFile(scratchMarker, []byte(err.Error()), 0o644))
	}
	if err := os.Remove(scratchMarker); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// scratchToErase returns the scratch disk, or "" without one. A label does not suffice: it may be that of a pod's disk.
func scratchToErase(disks []disk) (string, error) {
	for _, d := range withSerial(disks, "scratch") {
		if d.serial == "scratch" {
			return d.dev, nil
		}
		if d.isScratch() {
			return "", fmt.Errorf("%s has the label scratch, which a pod's disk can have too, and is not erased: give it the serial number scratch", d.dev)
		}
	}
	return "", nil
}

// replaceScratch mounts an encrypted file system in place of the scratch disk's own. Without a disk nothing is to be
// encrypted: images and what containers write are in memory.
func (g *guest) replaceScratch(dev string) error {
	if dev == "" {
		g.con.logf("no scratch disk: images and containers' files are in memory")
		return nil
	}
	// EINVAL and ENOENT: nothing is mounted there.
	if err := unix.Unmount(scratchDir, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", scratchDir, err)
	}
	mapped, err := blockdevice.EncryptOnce("scratch", dev)
	if err != nil {
		return err
	}
	// Without a journal: after a crash nothing is read. Tables of inodes stay as they are until they are used.
	format, err := g.spawn([]string{"/usr/bin/mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=1", mapped}, nil)
	if err != nil {
		return err
	}
	if <-format.Done; format.Code() != 0 {
		return fmt.Errorf("make a file system on %s: %w", mapped, exitError(format.Status))
	}
	m := mount{mapped, scratchDir, "ext4", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME, "noinit_itable"}
	if err := m.mount(); err != nil {
		return err
	}
	g.con.logf("encrypted the scratch disk, mounted it on %s", scratchDir)
	return nil
}
