// SPDX-License-Identifier: Apache-2.0

//go:build integration

package disks

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/luks"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

const diskSize = 64 << 20

// stand is a VM of which the disks are loop devices.
type stand struct {
	*Disks
	t   *testing.T
	log []string
}

func newStand(t *testing.T) *stand {
	s := &stand{t: t, Disks: &Disks{Sys: t.TempDir(), Dev: "/dev"}}
	s.Log = func(text string, args ...any) { s.log = append(s.log, fmt.Sprintln(append([]any{text}, args...)...)) }
	t.Cleanup(s.Unmount)
	return s
}

// attach makes a file a disk of the VM.
func (s *stand) attach(serial, file string) (dev string) {
	s.t.Helper()
	dev = strings.TrimSpace(s.tool("losetup", "--find", "--show", file))
	s.t.Cleanup(func() { exec.Command("losetup", "--detach", dev).Run() })
	dir := filepath.Join(s.Sys, "block", filepath.Base(dev))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.write(filepath.Join(dir, "serial"), serial+"\n")
	return dev
}

func (s *stand) tool(name string, args ...string) string {
	s.t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		s.t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(out)
}

func (s *stand) write(path, content string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) blank() string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "disk")
	s.write(file, "")
	s.resize(file, diskSize)
	return file
}

func (s *stand) resize(file string, size int64) {
	s.t.Helper()
	if err := os.Truncate(file, size); err != nil {
		s.t.Fatal(err)
	}
}

func storage(serial string, options ...string) *agent.Storage {
	return &agent.Storage{Driver: directvolume.GuestDriver, Source: serial, Fstype: "ext4", Options: options, MountPoint: filepath.Join(directvolume.GuestFolder, serial)}
}

func (s *stand) mount(st *agent.Storage) {
	s.t.Helper()
	if err := s.Mount(s.t.Context(), st); err != nil {
		s.t.Fatal(err)
	}
}

func bytesAt(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

// TestLifeOfADisk: formatted once, shared by containers, grown while in use, and its content is
// there for the next VM.
func TestLifeOfADisk(t *testing.T) {
	s := newStand(t)
	file, st := s.blank(), storage("life-1")
	st.FsGroup = &agent.FSGroup{GroupId: 1234}
	dev := s.attach("life-1", file)
	s.mount(st)
	s.mount(st)
	again := &stand{t: t, Disks: &Disks{Sys: s.Sys, Dev: s.Dev, Log: s.Log}} // the forwarder was started again
	again.mount(st)
	var root unix.Stat_t
	if err := unix.Stat(st.MountPoint, &root); err != nil || root.Gid != 1234 || root.Mode&unix.S_ISGID == 0 || root.Mode&0o070 != 0o070 {
		t.Errorf("root of the volume: group %d, mode %o, %v", root.Gid, root.Mode, err)
	}
	s.write(filepath.Join(st.MountPoint, "kept"), "content")
	small := bytesAt(t, st.MountPoint)
	s.resize(file, 4*diskSize)
	s.tool("losetup", "--set-capacity", dev)
	switch err := blockdevice.Grow(dev, st.MountPoint); {
	case errors.Is(err, unix.EPERM):
		t.Log("this machine may not let mounted file systems grow (CAP_SYS_RESOURCE); TestE2E/CSIVolumeExpansion does it in a VM")
	case err != nil:
		t.Fatal(err)
	case bytesAt(t, st.MountPoint) < 3*small:
		t.Errorf("%d bytes after growing from %d", bytesAt(t, st.MountPoint), small)
	}
	s.Unmount()
	s.tool("losetup", "--detach", dev)

	next := newStand(t)
	next.attach("life-1", file)
	next.mount(storage("life-1", "noatime"))
	if got, err := os.ReadFile(filepath.Join(st.MountPoint, "kept")); err != nil || string(got) != "content" {
		t.Errorf("content %q, %v", got, err)
	}
	if grown := bytesAt(t, st.MountPoint); grown < 3*small {
		t.Errorf("%d bytes in the next VM, after growing from %d", grown, small)
	}
	if len(s.log) != 1 || !strings.Contains(s.log[0], "formatting") || len(next.log) > 0 {
		t.Errorf("log %q, then %q", s.log, next.log)
	}
}

// TestCallThatDoesNotWait: the disk is mounted all the same, and the next call finds it so.
func TestCallThatDoesNotWait(t *testing.T) {
	s := newStand(t)
	s.attach("slow-1", s.blank())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := s.Mount(ctx, storage("slow-1")); err == nil || !strings.Contains(err.Error(), "when that is done") {
			t.Errorf("%v", err)
		}
	}
	s.mount(storage("slow-1"))
	if len(s.log) != 1 || bytesAt(t, storage("slow-1").MountPoint) < diskSize/2 {
		t.Errorf("log %q", s.log)
	}
	if left, err := os.ReadDir(unreadyFolder); err != nil || len(left) > 0 && bytesAt(t, filepath.Join(unreadyFolder, "slow-1")) == bytesAt(t, storage("slow-1").MountPoint) {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestDisksThatAreNotMounted: each is an error that says what is wrong, and stays as it is.
func TestDisksThatAreNotMounted(t *testing.T) {
	s := newStand(t)
	other := s.blank()
	s.tool("mke2fs", "-q", "-F", "-t", "ext4", other)
	damaged := s.blank()
	s.tool("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", damaged)
	// The root's inode becomes a file: e2fsck mends that only if somebody agrees.
	s.tool("debugfs", "-w", "-R", "set_inode_field <2> mode 0100644", damaged)
	s.tool("debugfs", "-w", "-R", "set_super_value state 2", damaged)
	foreign := s.blank()
	s.write(foreign, "\x00\x00LUKS or whatever")
	s.resize(foreign, diskSize)
	tiny := s.blank()
	s.resize(tiny, 1<<20)
	for serial, file := range map[string]string{"damaged": damaged, "foreign": foreign, "tiny": tiny, "other": other} {
		s.attach(serial, file)
	}
	xfs := storage("other")
	xfs.Fstype = "xfs"
	outside := storage("other")
	outside.MountPoint = "/etc"
	for want, st := range map[string]*agent.Storage{
		"run e2fsck": storage("damaged"), "never formatted": storage("foreign"), "at least 5 MiB": storage("tiny"), "ext4 only": xfs,
		"cannot be mounted at": outside, "mount option": storage("other", "a,b"),
	} {
		if err := s.Mount(t.Context(), st); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestSealedKeyOfADisk: what was sealed encrypts the disk, and the seal never does. One that cannot be opened leaves the disk as it is.
func TestSealedKeyOfADisk(t *testing.T) {
	const plain = "\x00\xff of the broker"
	s := newStand(t)
	s.Unseal = func(_ context.Context, sealed []byte) ([]byte, error) {
		switch string(sealed) {
		case "sealed.good.0.0":
			return []byte(plain), nil
		case "sealed.empty.0.0":
			return nil, nil
		}
		return nil, errors.New("the key broker refuses")
	}
	file := s.blank()
	s.attach("sealed-1", file)
	st := storage("sealed-1")
	st.Fstype = directvolume.FsLUKS
	mount := func(key string) error {
		st.DriverOptions = []string{directvolume.GuestKey + key}
		return s.Mount(t.Context(), st)
	}
	for key, want := range map[string]string{
		"sealed.of another pod.0.0": "the key of disk sealed-1: the key broker refuses", "sealed.empty.0.0": "the key of disk sealed-1: what was sealed is empty",
		base64.StdEncoding.EncodeToString([]byte("sealed.as older drivers have it")): "the key broker refuses",
	} {
		if err := mount(key); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), key) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if data, err := os.ReadFile(file); err != nil || len(bytes.Trim(data, "\x00")) > 0 {
		t.Fatalf("the disk was written to, %v", err)
	}
	if err := mount("sealed.good.0.0"); err != nil {
		t.Log("not mounted:", err) // this machine may have no dm-crypt; the header is there all the same
	}
	disk, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if _, err := luks.Open(disk, []byte(plain)); err != nil {
		t.Errorf("with what was sealed: %v", err)
	}
	if _, err := luks.Open(disk, []byte("sealed.good.0.0")); !errors.Is(err, luks.ErrKey) {
		t.Errorf("with the seal: %v", err)
	}
}
