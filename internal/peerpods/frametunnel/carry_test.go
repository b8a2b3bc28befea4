// SPDX-License-Identifier: Apache-2.0

package frametunnel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns two ends that keep the bounds of what is sent, as packet sockets do.
func pair(t *testing.T) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// TestFramesKeepTheirBounds, the smallest and the largest that there are, in both directions.
func TestFramesKeepTheirBounds(t *testing.T) {
	near, nearFrames := pair(t)
	far, farFrames := pair(t)
	left, right := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- carry(ctx, nearFrames, left, maxRecords) }()
	go func() { done <- carry(ctx, farFrames, right, maxRecords) }()
	buf := make([]byte, 1<<17)
	for _, size := range []int{vnetHeader + ethernet, 1514, maxFrame} {
		frame := bytes.Repeat([]byte{byte(size)}, size)
		for _, way := range [][2]*os.File{{near, far}, {far, near}} {
			if _, err := way[0].Write(frame); err != nil {
				t.Fatal(err)
			}
			way[1].SetReadDeadline(time.Now().Add(time.Minute))
			n, err := way[1].Read(buf)
			if err != nil || !bytes.Equal(buf[:n], frame) {
				t.Fatalf("%d bytes arrive as %d: %v", size, n, err)
			}
		}
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestBadLengths: the other end is not trusted with memory.
func TestBadLengths(t *testing.T) {
	for _, n := range []uint32{0, vnetHeader + ethernet - 1, maxFrame + 1, 1<<32 - 1} {
		_, frames := pair(t)
		left, right := net.Pipe()
		go right.Write(binary.BigEndian.AppendUint32(nil, n))
		if err := carry(t.Context(), frames, left, maxRecords); err == nil {
			t.Errorf("a frame of %d bytes was taken", n)
		}
	}
}

// TestKeysAreUsedUp: a connection ends after so many records, and the next one goes on.
func TestKeysAreUsedUp(t *testing.T) {
	outer, frames := pair(t)
	for range 2 {
		left, right := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- carry(t.Context(), frames, left, 2) }()
		for range 2 {
			if _, err := outer.Write(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			if _, err := right.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; !errors.Is(err, ErrUsedUp) {
			t.Errorf("error %v", err)
		}
	}
}

func TestOfferedFileIsTaken(t *testing.T) {
	outer, frames := pair(t)
	path := filepath.Join(t.TempDir(), "s")
	stop, err := Offer(path, frames)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v %v", info, err)
	}
	got, err := Take(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	stop()
	if _, err := outer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	got.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := got.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if _, err := Take(t.Context(), path); err == nil {
		t.Error("it is still offered")
	}
}
