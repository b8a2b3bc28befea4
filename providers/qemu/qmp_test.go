// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDialMonitorWaitsForRoom: QEMU's socket has a short queue, and a call that finds it full is served later.
func TestDialMonitorWaitsForRoom(t *testing.T) {
	folder, err := os.MkdirTemp("", "qmp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, qmpName)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err = errors.Join(err, unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(fd), path)
	defer socket.Close()
	var waiting []net.Conn
	for {
		conn, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, conn)
	}
	short, cancel := context.WithTimeout(t.Context(), 5*dialPause)
	defer cancel()
	began := time.Now()
	if _, err := dialMonitor(short, folder); err == nil || time.Since(began) < 4*dialPause {
		t.Fatalf("it did not wait: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		m, err := dialMonitor(t.Context(), folder)
		if err == nil {
			m.close()
		}
		done <- err
	}()
	listener, err := net.FileListener(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, conn := range waiting {
		conn.Close()
		if other, err := listener.Accept(); err != nil {
			t.Fatal(err)
		} else {
			other.Close()
		}
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var command struct {
		ID string `json:"id"`
	}
	if _, err = conn.Write([]byte(`{"QMP": {}}`)); err == nil {
		err = json.NewDecoder(conn).Decode(&command)
	}
	if err == nil {
		err = json.NewEncoder(conn).Encode(map[string]any{"return": struct{}{}, "id": command.ID})
	}
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
}
