// SPDX-License-Identifier: Apache-2.0

// Package disks mounts the disks of volumes in the VM: it finds one by its serial number,
// formats one that is proven empty, checks it, mounts it, and lets its file system grow
// with it.
package disks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
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

	mu sync.Mutex
	// failed are devices whose file systems did not grow: that is said once.
	failed map[string]bool
}

// mounted returns the devices of all volumes by where they are mounted. The kernel is asked: a
// forwarder that was started again has mounted nothing itself.
func mounted() (map[string]string, error) {
	list, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return filepath.Dir(i.Mountpoint) != directvolume.GuestFolder, false
	})
	if err != nil {
		return nil, err
	}
	devices := map[string]string{}
	for _, m := range list {
		devices[m.Mountpoint] = m.Source
	}
	return devices, nil
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
	there, err := mounted()
	if err != nil || there[point] != "" {
		return err
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
	if flags&unix.MS_RDONLY != 0 {
		return nil
	}
	if err := finish(dev, point, st.FsGroup); err != nil {
		return errors.Join(fmt.Errorf("disk %s: %w", st.Source, err), unix.Unmount(point, 0)) // the next try does all again
	}
	return nil
}

// finish does what a mounted volume needs before a container has it.
func finish(dev, point string, group *agent.FSGroup) error {
	if err := grow(dev, point); err != nil {
		return fmt.Errorf("grow its file system: %w", err)
	}
	if err := setGroup(point, group); err != nil {
		return fmt.Errorf("give its files the group of fsGroup: %w", err)
	}
	return nil
}

// Run lets the file systems of mounted disks grow when their disks have, until ctx ends.
func (d *Disks) Run(ctx context.Context) {
	for poll.Sleep(ctx, growEvery) == nil {
		d.growAll()
	}
}

func (d *Disks) growAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	there, err := mounted()
	for point, dev := range there {
		if err = grow(dev, point); err != nil && !d.failed[dev] {
			d.Log("a file system does not grow with its disk", "disk", dev, "error", err)
		}
		if d.failed == nil {
			d.failed = map[string]bool{}
		}
		d.failed[dev] = err != nil
	}
}

// Unmount writes everything to the disks and unmounts them: no container of the pod runs any more.
func (d *Disks) Unmount() {
	d.mu.Lock()
	defer d.mu.Unlock()
	there, err := mounted()
	if err != nil {
		d.Log("disks are not unmounted", "error", err)
	}
	for point, dev := range there {
		// First, since a container that still has it keeps the file system mounted.
		if err := errors.Join(syncAt(point), unix.Unmount(point, unix.MNT_DETACH)); err != nil {
			d.Log("a disk is not written out and unmounted", "disk", dev, "error", err)
		}
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
	"ro": unix.MS_RDONLY, "noatime": unix.MS_NOATIME, "relatime": unix.MS_RELATIME, "nodiratime": unix.MS_NODIRATIME,
	"nodev": unix.MS_NODEV, "nosuid": unix.MS_NOSUID, "noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	"strictatime": unix.MS_STRICTATIME, "lazytime": unix.MS_LAZYTIME,
	// What is so without them.
	"rw": 0, "defaults": 0, "suid": 0, "dev": 0, "exec": 0, "async": 0, "nofail": 0, "_netdev": 0,
}

// mountOptions divides a volume's mount options as mount(8) does.
func mountOptions(options []string) (flags uintptr, data string, err error) {
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
