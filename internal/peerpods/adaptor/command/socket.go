// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownedSocket is a unix listener that removes its file at the end only if that
// is still its own.
type ownedSocket struct {
	*net.UnixListener
	path string
	// file keeps the socket's inode from being used again, so that it tells
	// whether the file at path is still this one.
	file *os.File
}

// listen serves a unix socket with mode 0600. A file that nobody serves is
// replaced; a served one is an error that names the process.
func listen(path string) (*ownedSocket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("-socket: %w", err)
	}
	unlock, err := lockFolder(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("-socket: %w", err)
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("-socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("-socket: %w", err)
	}
	file, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("-socket: %w", err)
	}
	return &ownedSocket{UnixListener: listener, path: path, file: file}, nil
}

// remove closes the socket and removes its file, if it is still this one.
func (s *ownedSocket) remove() {
	s.Close()
	defer s.file.Close()
	ours, err := s.file.Stat()
	if err != nil {
		return
	}
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, ours) {
		os.Remove(s.path)
	}
}

// lockFolder keeps two adaptors that start at once from both finding a stale
// file.
func lockFolder(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func removeStale(path string) error {
	file, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("-socket: %w", err)
	case file.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("-socket %s: the file there is not a socket; remove it or choose another path", path)
	}
	conn, err := net.DialTimeout("unix", path, 5*time.Second)
	if err == nil {
		defer conn.Close()
		return fmt.Errorf("-socket %s is already served by %s; stop that or choose another path", path, peer(conn.(*net.UnixConn)))
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return os.Remove(path)
	}
	return fmt.Errorf("-socket %s: cannot determine whether it is served: %w", path, err)
}

// peer names the process that listens at the other end.
func peer(conn *net.UnixConn) string {
	raw, err := conn.SyscallConn()
	if err != nil {
		return "another process"
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctlErr != nil || err != nil || cred.Pid == 0 {
		return "another process"
	}
	return fmt.Sprintf("pid %d", cred.Pid)
}
