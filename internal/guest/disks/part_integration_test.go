// SPDX-License-Identifier: Apache-2.0

//go:build integration

package disks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestPartsOfAVolume: what is missing is made with the volume's mode and group, what is there is taken as it is, and
// nothing is reached or made outside the volume.
func TestPartsOfAVolume(t *testing.T) {
	s, volume := newStand(t), storage("parts-1")
	volume.FsGroup = &agent.FSGroup{GroupId: 1234}
	s.attach("parts-1", s.blank())
	s.mount(volume)
	in := func(path string) string { return filepath.Join(volume.MountPoint, path) }
	part := func(index, within string) *agent.Storage {
		return &agent.Storage{Driver: directvolume.GuestPartDriver, Source: volume.MountPoint, Options: []string{within}, MountPoint: filepath.Join(partsOf("c1"), index)}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	s.write(in("file"), "a file")
	for link, to := range map[string]string{"inner": "a/b", "dangling": "nowhere", "absolute": "/etc", "up": "../..", "new": outside} {
		if err := os.Symlink(to, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	for index, within := range map[string]string{"0": "a/b", "1": "file"} {
		if err := s.MountPart("c1", part(index, within)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.MountPart("c1", part("2", "inner")); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"a", "a/b"} {
		var st, top unix.Stat_t
		if err := errors.Join(unix.Stat(in(folder), &st), unix.Stat(volume.MountPoint, &top)); err != nil || st.Mode != top.Mode || st.Gid != 1234 {
			t.Errorf("%s: mode %o, group %d, %v; want mode %o", folder, st.Mode, st.Gid, err, top.Mode)
		}
	}
	if data, err := os.ReadFile(part("1", "").MountPoint); err != nil || string(data) != "a file" {
		t.Errorf("the file: %q, %v", data, err)
	}
	s.write(filepath.Join(part("2", "").MountPoint, "x"), "through a link")
	if _, err := os.Stat(filepath.Join(part("0", "").MountPoint, "x")); err != nil {
		t.Errorf("a link within the volume: %v", err)
	}
	for _, within := range []string{"dangling", "absolute", "up", "new", "absolute/new", "up/new", "file/new", "../x", "/x", ""} {
		if err := s.MountPart("c1", part("3", within)); err == nil {
			t.Errorf("%q is mounted", within)
		}
	}
	stray := part("3", "a")
	stray.MountPoint = "/etc/parts/c1/3"
	if err := s.MountPart("c1", stray); err == nil {
		t.Error("mounted elsewhere")
	}
	if _, err := os.Lstat(outside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("outside the volume: %v", err)
	}

	again := &Disks{Log: s.Log} // the forwarder was started again
	again.UnmountParts("c1")
	if _, err := os.Lstat(partsOf("c1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	if data, err := os.ReadFile(in("a/b/x")); err != nil || string(data) != "through a link" {
		t.Errorf("after the container: %q, %v", data, err)
	}
}
