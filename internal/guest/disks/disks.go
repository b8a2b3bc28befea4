// SPDX-License-Identifier: Apache-2.0

// Package disks mounts the disks of volumes in the VM: it finds one by its serial number,
// formats one that is proven empty, checks it, mounts it, and lets its file system grow
// with it.
package disks

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// appearTimeout is how long a disk is waited for that the node has attached.
	appearTimeout = 30 * time.Second
	appearPause   = 50 * time.Millisecond
	// growEvery is how often the sizes of mounted disks are looked at.
	growEvery = 2 * time.Second
	// mountPatience is how long a call waits for a disk: less than kubelet does for the container
	// (runtimeRequestTimeout is 2 minutes), which would say less of the cause. Sooner would not help: a pod that
	// restarts nothing fails with its container.
	mountPatience = 110 * time.Second
	// unreadyFolder is where disks are mounted until they are ready.
	unreadyFolder = directvolume.GuestFolder + "-unready"
)

// Disks are those that are mounted in this VM.
type Disks struct {
	// Sys is /sys and Dev is /dev, except in tests.
	Sys, Dev string
	// Log is told what was formatted and what has grown.
	Log func(text string, args ...any)
	// Marks is where mounts are noted.
	Marks marks.Marks
	// Unseal opens a key that is a sealed Secret.
	Unseal func(ctx context.Context, sealed []byte) ([]byte, error)

	mu sync.Mutex
	// mountings are by mount point, until somebody has heard what came of them.
	mountings map[string]*mounting
	// raw are devices that containers have as they are.
	raw []string
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

// mounting is what makes a disk ready for containers.
type mounting struct {
	began time.Time
	done  chan struct{}
	err   error // when done is closed
}

// Mount mounts the disk of a storage where that says. A disk that is mounted there already
// stays: containers of a pod share it. If it takes longer than the caller waits that is an
// error, and it goes on: who asks again gets what came of it.
func (d *Disks) Mount(ctx context.Context, st *agent.Storage) error {
	m, err := d.begin(context.WithoutCancel(ctx), st)
	if err != nil || m == nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, mountPatience)
	defer cancel()
	select {
	case <-m.done:
	case <-wait.Done():
		return fmt.Errorf("disk %s is not mounted yet, after %s: it has not appeared, its key has not come, or its file system is made, checked or given its group; the container can be created when that is done",
			st.Source, time.Since(m.began).Round(time.Second))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mountings, filepath.Clean(st.MountPoint))
	return m.err
}

// begin returns nil for a disk that is mounted.
func (d *Disks) begin(ctx context.Context, st *agent.Storage) (*mounting, error) {
	point := filepath.Clean(st.MountPoint)
	if filepath.Dir(point) != directvolume.GuestFolder {
		return nil, fmt.Errorf("a disk cannot be mounted at %.100q", st.MountPoint)
	}
	e, err := encryptionOf(st)
	if err != nil {
		return nil, err
	}
	flags, data, err := mountOptions(st.Options)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.mountings[point]; m != nil {
		return m, nil
	}
	there, err := mounted()
	if err != nil || there[point] != "" {
		return nil, err
	}
	m := &mounting{began: time.Now(), done: make(chan struct{})}
	if d.mountings == nil {
		d.mountings = map[string]*mounting{}
	}
	d.mountings[point] = m
	go func() {
		defer close(m.done)
		began := marks.Uptime()
		m.err = d.mount(ctx, st, e, flags, data)
		d.Marks.Note("mount-disk", began, st.Source)
	}()
	return m, nil
}

// encryptionOf returns nil for a disk that is not to be encrypted. Its key may be sealed.
func encryptionOf(st *agent.Storage) (*blockdevice.Encryption, error) {
	switch st.Fstype {
	case "", "ext4":
		return nil, nil
	case directvolume.FsLUKS:
	default:
		return nil, fmt.Errorf("file system %.40q: a VM has ext4 only", st.Fstype)
	}
	for _, option := range st.DriverOptions {
		if text, is := strings.CutPrefix(option, directvolume.GuestKey); is {
			if isSealed([]byte(text)) {
				return blockdevice.NewEncryption(st.Source, []byte(text)), nil
			}
			key, err := base64.StdEncoding.DecodeString(text)
			if err != nil || len(key) == 0 {
				return nil, fmt.Errorf("the key of disk %.100q is not base64", st.Source)
			}
			return blockdevice.NewEncryption(st.Source, key), nil
		}
	}
	return nil, fmt.Errorf("disk %.100q has to be encrypted, and the request has no key", st.Source)
}

func isSealed(key []byte) bool { return bytes.HasPrefix(key, []byte(attest.SealedPrefix)) }

// unseal opens the key of a disk if it is sealed: as it is, it encrypts nothing.
func (d *Disks) unseal(ctx context.Context, e *blockdevice.Encryption) error {
	if e == nil || !isSealed(e.Key) {
		return nil
	}
	plain, err := d.Unseal(ctx, e.Key)
	if err == nil && len(plain) == 0 {
		err = errors.New("what was sealed is empty")
	}
	e.Key = plain
	return err
}

// mount brings the disk to its mount point when it is ready: a forwarder that is started again
// takes what is there for ready.
func (d *Disks) mount(ctx context.Context, st *agent.Storage, e *blockdevice.Encryption, flags uintptr, data string) error {
	dev, err := d.await(ctx, st.Source)
	if err != nil {
		return err
	}
	if err := d.unseal(ctx, e); err != nil {
		return fmt.Errorf("the key of disk %s: %w", st.Source, err)
	}
	switch {
	case flags&unix.MS_RDONLY == 0:
		dev, err = blockdevice.Prepare(ctx, dev, e, d.Log)
	case e != nil:
		dev, err = blockdevice.OpenEncrypted(e, dev)
	}
	if err != nil {
		return fmt.Errorf("disk %s: %w", st.Source, err)
	}
	before := filepath.Join(unreadyFolder, filepath.Base(st.MountPoint))
	unix.Unmount(before, unix.MNT_DETACH) // of one that was killed
	if err := errors.Join(os.MkdirAll(before, 0o700), os.MkdirAll(st.MountPoint, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount(dev, before, "ext4", flags, data); err != nil {
		return fmt.Errorf("mount disk %s: %w; the kernel's messages are on the VM's console", st.Source, err)
	}
	defer unix.Unmount(before, unix.MNT_DETACH)
	if flags&unix.MS_RDONLY == 0 {
		if err := finish(dev, before, st.FsGroup); err != nil {
			return fmt.Errorf("disk %s: %w", st.Source, err) // the next try does all again
		}
	}
	return unix.Mount(before, st.MountPoint, "", unix.MS_BIND, "")
}

// finish does what a mounted volume needs before a container has it.
func finish(dev, point string, group *agent.FSGroup) error {
	if err := blockdevice.Grow(dev, point); err != nil {
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
	for _, dev := range d.raw {
		blockdevice.Rescan(d.Sys, dev) // if it fails the container sees the size that it knows
	}
	there, err := mounted()
	for point, dev := range there {
		if err = errors.Join(blockdevice.Rescan(d.Sys, dev), blockdevice.Grow(dev, point)); err != nil && !d.failed[dev] {
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
	containers, _ := os.ReadDir(directvolume.GuestParts) // those that the agent did not make are left
	for _, container := range containers {
		d.UnmountParts(container.Name())
	}
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
		switch found := blockdevice.Find(d.Sys, d.Dev, serial); len(found) {
		case 0:
			if err := blockdevice.Discover(d.Sys); err != nil {
				return "", fmt.Errorf("look for the disk with the serial number %.100q: %w", serial, err)
			}
		case 1:
			return found[0], nil
		default:
			return "", fmt.Errorf("disks %s of the VM all have the serial number %.100q", strings.Join(found, ", "), serial)
		}
		if poll.Sleep(ctx, appearPause) != nil {
			return "", fmt.Errorf("the VM has no disk with the serial number %.100q", serial)
		}
	}
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
