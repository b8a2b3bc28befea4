// SPDX-License-Identifier: Apache-2.0

package pluginfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider"
)

// Sum is a SHA-256.
type Sum [sha256.Size]byte

// String returns it in hexadecimal.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// ParseSum reads 64 hexadecimal digits.
func ParseSum(text string) (Sum, error) {
	data, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(data) != sha256.Size {
		return Sum{}, fmt.Errorf("%w: %.80q is not a SHA-256: it must be 64 hexadecimal digits, as the first column of sha256sum", provider.ErrInvalidArgument, text)
	}
	return Sum(data), nil
}

// copyTo copies the file from its start and checks what it copied. A nil want
// takes anything.
func copyTo(w io.Writer, f *os.File, want *Sum) (Sum, error) {
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, hash), io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return Sum{}, fmt.Errorf("copy the plugin %s: %w", f.Name(), err)
	}
	sum := Sum(hash.Sum(nil))
	if want != nil && !bytes.Equal(sum[:], want[:]) {
		return sum, fmt.Errorf("%w: The sha256sum of the external plugin: %s doesn't match the one from configmap: %s", provider.ErrInvalidArgument, sum, *want)
	}
	return sum, nil
}

// Seal returns a program as an anonymous file that nobody can write to any
// more, not even this process. It runs through its /proc/self/fd path.
func Seal(f *os.File, want *Sum) (*os.File, error) {
	sealed, err := memfd(filepath.Base(f.Name()))
	if err != nil {
		return nil, err
	}
	if _, err := copyTo(sealed, f, want); err != nil {
		sealed.Close()
		return nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(sealed.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		sealed.Close()
		return nil, fmt.Errorf("seal the copy of %s: %w", f.Name(), err)
	}
	return sealed, nil
}

func memfd(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all of them are executable
		fd, err = unix.MemfdCreate(name, flags)
	}
	switch {
	case errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("%w: this kernel allows no executable memory file, from which plugins run: set the sysctl vm.memfd_noexec to 0 or 1", provider.ErrPermissionDenied)
	case err != nil:
		return nil, fmt.Errorf("make a memory file for the plugin: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Private is a copy of a file in a folder that only this user can enter.
type Private struct {
	// Path keeps the base name of the file.
	Path   string
	Sum    Sum
	folder *Folder
}

// Copy returns a private copy below the folder dir; empty means the folder for
// temporary files.
func Copy(f *os.File, want *Sum, dir string) (p *Private, err error) {
	folder, err := NewFolder(dir)
	if err != nil {
		return nil, err
	}
	p = &Private{Path: filepath.Join(folder.Path, filepath.Base(f.Name())), folder: folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Remove())
		}
	}()
	out, err := os.OpenFile(p.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return nil, err
	}
	p.Sum, err = copyTo(out, f, want)
	return p, errors.Join(err, out.Close())
}

// Remove removes the copy and its folder.
func (p *Private) Remove() error { return p.folder.Remove() }
