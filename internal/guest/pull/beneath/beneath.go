// SPDX-License-Identifier: Apache-2.0

// Package beneath works on files below one folder and on no others, whatever
// symbolic links somebody planted there. Look-ups are left to the kernel
// (openat2), so there is no gap between a check and its use.
package beneath

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Links says what a symbolic link that leaves the folder means.
type Links uint64

const (
	// Refuse makes a link that leaves the folder an error.
	Refuse Links = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
	// Chroot takes the folder for the root folder: absolute links and ".."
	// stay within it, as they do for a process whose root it is.
	Chroot Links = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
)

// maxLinks ends the search for the target of dangling links; the kernel's own
// limit (MAXSYMLINKS) is the same.
const maxLinks = 40

// Dir is the open folder. Its methods may be called from many goroutines.
type Dir struct {
	fd    int
	links Links
	path  string
	// walks counts look-ups that began at the folder, for tests: paths of links
	// that lead to links can be expensive.
	walks atomic.Int64
}

// Open opens folder path, which is trusted.
func Open(path string, links Links) (*Dir, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &Dir{fd: fd, links: links, path: path}, nil
}

// Close gives the descriptor back.
func (d *Dir) Close() error { return unix.Close(d.fd) }

// Clean turns a name from outside into a path relative to the folder; "." is
// the folder itself. Leading slashes and ".." at the top vanish.
func Clean(name string) string {
	if rel := strings.TrimPrefix(path.Clean("/"+name), "/"); rel != "" {
		return rel
	}
	return "."
}

// Open opens the file at rel with open(2)'s flags. The caller closes it.
func (d *Dir) Open(rel string, flags int, perm uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(perm), Resolve: uint64(d.links)}
	d.walks.Add(1)
	for {
		fd, err := unix.Openat2(d.fd, rel, &how)
		// EAGAIN: something was renamed during the look-up of a "..".
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, d.wrap("open", rel, err)
		}
	}
}

// OpenDir opens folder rel for use as a starting point of other calls.
func (d *Dir) OpenDir(rel string) (int, error) {
	return d.Open(rel, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// MkdirAll opens folder rel and makes what is missing with mode perm. A link
// that leads nowhere has its target made.
func (d *Dir) MkdirAll(rel string, perm uint32) (int, error) {
	return d.mkdirAll(Clean(rel), perm, 0)
}

// mkdirAll looks for the longest part of the path that is there by halves, and
// goes on from that folder: walking from the top for each missing part would
// take minutes for a deep path through links.
func (d *Dir) mkdirAll(rel string, perm uint32, depth int) (int, error) {
	fd, err := d.OpenDir(rel)
	if !errors.Is(err, unix.ENOENT) || rel == "." {
		return fd, err
	}
	if depth > maxLinks {
		return -1, d.wrap("mkdir", rel, unix.ELOOP)
	}
	parts := strings.Split(rel, "/")
	prefix := func(n int) string { return Clean(path.Join(parts[:n]...)) }
	there := sort.Search(len(parts)-1, func(n int) bool {
		fd, err := d.OpenDir(prefix(n + 1))
		if err == nil {
			unix.Close(fd)
		}
		return err != nil
	})
	at, err := d.OpenDir(prefix(there))
	if err != nil {
		return -1, err
	}
	for n := there; n < len(parts); n++ {
		if err := unix.Mkdirat(at, parts[n], perm); err != nil && err != unix.EEXIST {
			unix.Close(at)
			return -1, d.wrap("mkdir", prefix(n+1), err)
		}
		if target, err := readlink(at, parts[n]); err == nil {
			unix.Close(at)
			return d.mkdirAll(Clean(path.Join(d.follow(prefix(n+1), target), path.Join(parts[n+1:]...))), perm, depth+1)
		}
		next, err := unix.Openat(at, parts[n], unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(at)
		if err != nil {
			return -1, d.wrap("open", prefix(n+1), err)
		}
		at = next
	}
	return at, nil
}

// follow returns the path to which a link at rel leads, still unresolved.
func (d *Dir) follow(rel, target string) string {
	if d.links == Refuse {
		return Clean(path.Join(path.Dir(rel), target))
	}
	if path.IsAbs(target) {
		return Clean(target)
	}
	return Clean(path.Join("/", path.Dir(rel), target))
}

func readlink(dirfd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dirfd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func (d *Dir) wrap(op, rel string, err error) error {
	switch err {
	case nil:
		return nil
	case unix.EXDEV:
		return &os.PathError{Op: op, Path: path.Join(d.path, rel), Err: fmt.Errorf("leads out of %s: %w", d.path, err)}
	}
	return &os.PathError{Op: op, Path: path.Join(d.path, rel), Err: err}
}

// RemoveAll removes name in the open folder dirfd and all below it, without
// following any link. What is already gone is success.
func RemoveAll(dirfd int, name string) error {
	switch err := unix.Unlinkat(dirfd, name, 0); err {
	case nil, unix.ENOENT:
		return nil
	case unix.EISDIR, unix.EPERM:
	default:
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	if err := EachChild(dirfd, name, RemoveAll); err != nil {
		return err
	}
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// EachChild calls fn for each entry of folder name in dirfd with the open
// folder and the entry's name. A folder that does not exist has no entries.
func EachChild(dirfd int, name string, fn func(dirfd int, child string) error) error {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	children, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := fn(fd, child); err != nil {
			return err
		}
	}
	return nil
}
