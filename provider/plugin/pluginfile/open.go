// SPDX-License-Identifier: Apache-2.0

// Package pluginfile opens the file of a plugin so that what is checked is what
// runs: the bytes are copied while they are hashed, and only the copy is used.
// Nobody can swap or rewrite the file between the check and the start, nor
// before a restart.
package pluginfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider"
)

// Kind is what a file is, as far as plugins go.
type Kind int

// Kinds.
const (
	// Other is nothing that can be loaded.
	Other Kind = iota
	// GoPlugin is a Go plugin: its name ends in .so.
	GoPlugin
	// Program is an executable: ELF, or a script that starts with #!.
	Program
)

// Open opens a plugin's file. It refuses whatever others could have written:
// files and folders that are writable for everybody.
func Open(path string) (*os.File, error) {
	if err := checkFolders(path); err != nil {
		return nil, err
	}
	// A named pipe must not block.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, explain(path, err)
	}
	if err := checkFile(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkFolders looks at the folder of path, and at that of the file which path
// links to.
func checkFolders(path string) error {
	if err := CheckFolder(filepath.Dir(path)); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return explain(path, err)
	}
	return CheckFolder(filepath.Dir(target))
}

// CheckFolder returns why plugins in a folder cannot be trusted or reached.
func CheckFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return explain(dir, err)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is not a folder", provider.ErrInvalidArgument, dir)
	case info.Mode()&0o100 == 0:
		return fmt.Errorf("%w: The parent directory of the external plugin %s lacks execute permissions: its mode is %#o; run chmod u+x %[2]s",
			provider.ErrPermissionDenied, dir, info.Mode().Perm())
	}
	return checkOwner(info, "the folder "+dir, dir)
}

// checkOwner refuses what others than root and this process's user could write:
// what is in it runs with our rights.
func checkOwner(info fs.FileInfo, what, path string) error {
	if info.Mode()&0o002 != 0 {
		return fmt.Errorf("%w: %s is writable for everybody (mode %#o), so anybody could change the plugin; run chmod o-w %s",
			provider.ErrPermissionDenied, what, info.Mode().Perm(), path)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to uid %d, who could change the plugin; run chown root %s",
			provider.ErrPermissionDenied, what, st.Uid, path)
	}
	if info.Mode()&0o020 != 0 && st.Gid != 0 {
		return fmt.Errorf("%w: %s is writable for group %d (mode %#o), which could change the plugin; run chmod g-w %s",
			provider.ErrPermissionDenied, what, st.Gid, info.Mode().Perm(), path)
	}
	return nil
}

func checkFile(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return explain(f.Name(), err)
	case info.IsDir():
		return fmt.Errorf("%w: %s is a folder; name the plugin's file", provider.ErrInvalidArgument, f.Name())
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a regular file (%s)", provider.ErrInvalidArgument, f.Name(), info.Mode())
	}
	return checkOwner(info, f.Name(), f.Name())
}

func explain(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no %s on this machine (in a container: is its folder mounted?)", provider.ErrNotFound, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: uid %d may not read %s: change its owner or mode, or that of a folder above it", provider.ErrPermissionDenied, os.Getuid(), path)
	case errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w: %s is a socket; write unix://%[2]s for a provider that already runs", provider.ErrInvalidArgument, path)
	}
	return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
}

// KindOf returns what the file is: for a program also whether it may be
// executed, for anything else why it is nothing.
func KindOf(f *os.File) (Kind, error) {
	if strings.HasSuffix(f.Name(), ".so") {
		return GoPlugin, nil
	}
	info, err := f.Stat()
	if err != nil {
		return Other, explain(f.Name(), err)
	}
	if !isProgram(f) {
		return Other, fmt.Errorf("%w: %s is neither a Go plugin (*.so) nor a program (ELF, or a script that starts with #!)", provider.ErrInvalidArgument, f.Name())
	}
	if info.Mode()&0o111 == 0 {
		return Other, fmt.Errorf("%w: %s lacks execute permissions: its mode is %#o; run chmod +x %[2]s", provider.ErrPermissionDenied, f.Name(), info.Mode().Perm())
	}
	return Program, nil
}

func isProgram(f *os.File) bool {
	magic := make([]byte, 4)
	n, _ := f.ReadAt(magic, 0)
	return bytes.HasPrefix(magic[:n], []byte("#!")) || bytes.Equal(magic[:n], []byte("\x7fELF"))
}
