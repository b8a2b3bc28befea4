// SPDX-License-Identifier: Apache-2.0

//go:build integration

package loopdisk

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const size = 16 << 20

// newDisk makes a disk of the machine whose name is unique among its loop devices.
func newDisk(t *testing.T) (d disk, serial string) {
	t.Helper()
	folder := t.TempDir()
	d = disk{folder: folder, sys: "/sys", dev: "/dev", lingers: time.Second}
	serial = filepath.Base(filepath.Dir(folder)) + filepath.Base(folder)
	if err := d.make(serial, size, ""); err != nil {
		t.Fatal(err)
	}
	return d, serial
}

func take(t *testing.T, d disk, serial, instance string) *os.File {
	t.Helper()
	loop, err := d.take(serial, instance)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loop.Close() })
	return loop
}

// TestTake: an instance has one loop device over a file, another has none as long as that is open, and it is larger when the file is.
func TestTake(t *testing.T) {
	d, serial := newDisk(t)
	instance := strings.Repeat("a", 64) // longer than what the kernel keeps
	first := take(t, d, serial, instance)
	if again := take(t, d, serial, instance); again.Name() != first.Name() {
		t.Errorf("%s and then %s", first.Name(), again.Name())
	} else {
		again.Close()
	}
	if _, err := d.take(serial, "b"); !errors.Is(err, errInUse) {
		t.Errorf("another instance: %v", err)
	}
	if err := d.make(serial, 2*size, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := first.Seek(0, 2); got != 2*size || err != nil {
		t.Errorf("%d bytes, %v", got, err)
	}
	first.Close()
	take(t, d, serial, "b")
	if _, err := d.take("absent", "b"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a disk that is not there: %v", err)
	}
}

// TestCopy: a copy is of one time. Of a disk that is written to without a pause there may be none.
func TestCopy(t *testing.T) {
	d, serial := newDisk(t)
	loop := take(t, d, serial, "a")
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i >> 12)
	}
	_, err := loop.WriteAt(data, 0)
	if err = errors.Join(err, loop.Sync()); err != nil {
		t.Fatal(err)
	}
	copied := disk{folder: t.TempDir(), sys: d.sys, dev: d.dev}
	source := filepath.Join(d.folder, serial)
	if err := copied.make("quiet", size, source); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(copied.folder, "quiet")); err != nil || string(got) != string(data) {
		t.Errorf("another content, of %d bytes: %v", len(got), err)
	}
	// Past the kernel's cache, so that the disk is written to all the time.
	direct, err := os.OpenFile(loop.Name(), os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	begun, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for n := 0; !stop.Load(); n++ {
			binary.LittleEndian.PutUint64(page, uint64(n))
			_, err := direct.WriteAt(page, 0)
			if err == nil {
				_, err = direct.WriteAt(page, size-4096)
			}
			if err != nil {
				t.Error(err)
			}
			if n == 0 {
				close(begun)
			}
		}
	}()
	<-begun
	err = copied.make("busy", size, source)
	stop.Store(true)
	<-stopped
	got, readErr := os.ReadFile(filepath.Join(copied.folder, "busy"))
	if err != nil {
		if !strings.Contains(err.Error(), "written to") || !errors.Is(readErr, os.ErrNotExist) {
			t.Errorf("%v; its file: %v", err, readErr)
		}
		return
	}
	if len(got) != size {
		t.Fatalf("a copy of %d bytes, %v", len(got), readErr)
	}
	begin, end := binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[size-4096:])
	if begin != end && begin != end+1 {
		t.Errorf("write %d is in the copy at its begin, and %d, which was later, at its end", begin, end)
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"make", "serial"}, {"make", "serial", "many"}, {"hold", "serial"}, {"other", "serial", "1"}} {
		if err := run(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
