// SPDX-License-Identifier: Apache-2.0

// Package disks mounts the disks of volumes in the VM: it finds one by its serial number,
// formats one that is proven empty, checks it, mounts it, and lets its file system grow
// with it.
package disks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// appearTimeout is how long a disk is waited for that the node has attached.
	appearTimeout = 30 * time.Second
	appearPause   = 50 * time.Millisecond
	// growEvery is how often the sizes of mounted disks are looked at.
	growEvery = 2 * time.Second
)

// Disks are those that are mounted in this VM.
type Disks struct {
	// Sys is /sys and Dev is /dev, except in tests.
	Sys, Dev string
	// Log is told what was formatted and what has grown.
	Log func(text string, args ...any)

	mu      sync.Mutex
	mounted map[string]string // device by mount point
}

// Mount mounts the disk of a storage where that says. A disk that is mounted there already
// stays: containers of a pod share it.
func (d *Disks) Mount(ctx context.Context, st *agent.Storage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	point := filepath.Clean(st.MountPoint)
	if filepath.Dir(point) != directvolume.GuestFolder {
		return fmt.Errorf("a disk cannot be mounted at %.100q", st.MountPoint)
	}
	if d.mounted[point] != "" {
		return nil
	}
	if st.Fstype != "" && st.Fstype != "ext4" {
		return fmt.Errorf("file system %.40q: a VM has ext4 only", st.Fstype)
	}
	flags, data, err := mountOptions(st.Options)
	if err != nil {
		return err
	}
	dev, err := d.await(ctx, st.Source)
	if err != nil {
		return err
	}
	if flags&unix.MS_RDONLY == 0 {
		if err := d.prepare(ctx, dev); err != nil {
			return fmt.Errorf("disk %s: %w", st.Source, err)
		}
	}
	if err := os.MkdirAll(point, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(dev, point, "ext4", flags, data); err != nil {
		return fmt.Errorf("mount disk %s: %w; the kernel's messages are on the VM's console", st.Source, err)
	}
	if d.mounted == nil {
		d.mounted = map[string]string{}
	}
	d.mounted[point] = dev
	if flags&unix.MS_RDONLY != 0 {
		return nil
	}
	if err := grow(dev, point); err != nil {
		return fmt.Errorf("disk %s: grow its file system: %w", st.Source, err)
	}
	return setGroup(point, st.FsGroup)
}

// Run lets the file systems of mounted disks grow when their disks have, until ctx ends.
func (d *Disks) Run(ctx context.Context) {
	for poll.Sleep(ctx, growEvery) == nil {
		d.mu.Lock()
		for point, dev := range d.mounted {
			if err := grow(dev, point); err != nil {
				d.Log("a file system does not grow with its disk", "disk", dev, "error", err)
			}
		}
		d.mu.Unlock()
	}
}

// Unmount writes everything to the disks and unmounts them: no container of the pod runs any more.
func (d *Disks) Unmount() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for point, dev := range d.mounted {
		if err := unix.Unmount(point, 0); err != nil {
			d.Log("a disk is in use; it is written out and unmounted later", "disk", dev, "error", err)
			syncAt(point)
			unix.Unmount(point, unix.MNT_DETACH)
		}
		delete(d.mounted, point)
	}
}

// await returns the device of the disk with a serial number.
func (d *Disks) await(ctx context.Context, serial string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, appearTimeout)
	defer cancel()
	for {
		if dev := d.find(serial); dev != "" {
			return dev, nil
		}
		if poll.Sleep(ctx, appearPause) != nil {
			return "", fmt.Errorf("the VM has no disk with the serial number %.100q", serial)
		}
	}
}

func (d *Disks) find(serial string) string {
	entries, _ := os.ReadDir(filepath.Join(d.Sys, "block"))
	for _, e := range entries {
		of := filepath.Join(d.Sys, "block", e.Name())
		for _, path := range []string{"serial", "device/serial"} { // virtio, NVMe
			if data, err := os.ReadFile(filepath.Join(of, path)); err == nil && strings.TrimSpace(string(data)) == serial {
				return filepath.Join(d.Dev, e.Name())
			}
		}
		// SPC-6: the page's own header has 4 bytes.
		if page, err := os.ReadFile(filepath.Join(of, "device/vpd_pg80")); err == nil && len(page) > 4 && strings.TrimSpace(string(page[4:])) == serial {
			return filepath.Join(d.Dev, e.Name())
		}
	}
	return ""
}

// mountFlags are the options that the kernel has as flags; mount(8) has them all.
var mountFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "rw": 0, "noatime": unix.MS_NOATIME, "relatime": unix.MS_RELATIME, "nodiratime": unix.MS_NODIRATIME,
	"nodev": unix.MS_NODEV, "nosuid": unix.MS_NOSUID, "noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC, "defaults": 0,
}

// mountOptions divides a volume's mount options as mount(8) does. Without them a disk
// brings neither devices nor programs with the rights of others.
func mountOptions(options []string) (flags uintptr, data string, err error) {
	flags = unix.MS_NODEV | unix.MS_NOSUID
	var rest []string
	for _, option := range options {
		flag, known := mountFlags[option]
		switch {
		case known:
			flags |= flag
		case strings.ContainsAny(option, ",\x00"):
			return 0, "", fmt.Errorf("mount option %.40q", option)
		case option != "bind" && option != "rbind" && option != "":
			rest = append(rest, option)
		}
	}
	return flags, strings.Join(rest, ","), nil
}
