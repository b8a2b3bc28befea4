// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/guest/pull/beneath"
	"golang.org/x/sys/unix"
)

// Whiteouts delete files of lower layers: OCI image specification, layer.md.
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	opaqueMarker   = ".wh..wh..opq"
)

// unpacker applies layers to a folder, lowest first. Nothing in an archive can
// reach a file outside the folder.
type unpacker struct {
	root *beneath.Dir
	buf  []byte
	// dirTimes are set last: each new entry changes the time of its folder.
	dirTimes map[string]time.Time

	// first is true for the lowest layer, which can hide nothing.
	first bool
	// added are the paths that the current layer brought, and the folders on
	// the way to them.
	added map[string]struct{}

	// room (bytes) and entries are what the file system has left for the image.
	room    int64
	entries int64

	// parent is the folder of the last entry, kept open: most entries share
	// theirs with the one before. -1 if none.
	parent     int
	parentPath string
}

func newUnpacker(dir string) (*unpacker, error) {
	root, err := beneath.Open(dir, beneath.Chroot)
	if err != nil {
		return nil, err
	}
	u := &unpacker{
		root: root, buf: make([]byte, chunk), first: true, parent: -1,
		dirTimes: make(map[string]time.Time), entries: maxEntries,
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		root.Close()
		return nil, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	u.room = int64(fs.Bavail) * fs.Bsize
	if fs.Ffree > 0 && fs.Ffree < maxEntries {
		u.entries = int64(fs.Ffree)
	}
	return u, nil
}

const (
	// maxEntries limits the files of an image where the file system has no limit of its
	// own. The largest images have a million.
	maxEntries = 16 << 20
	// maxFile limits the size of a file, holes included, in bytes.
	maxFile = 1 << 40
	// hole is the unit of holes in files, in bytes: a page.
	hole = 4 << 10
)

// errNoRoom means that an image does not fit. It is returned before the disk is
// full.
var errNoRoom = fmt.Errorf("the image does not fit: %w", unix.ENOSPC)

func (u *unpacker) close() {
	u.forgetParent()
	u.root.Close()
}

func (u *unpacker) forgetParent() {
	if u.parent >= 0 {
		unix.Close(u.parent)
		u.parent = -1
	}
}

// layer applies one archive.
func (u *unpacker) layer(r io.Reader) error {
	u.added = make(map[string]struct{})
	archive := tar.NewReader(r)
	for {
		hdr, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := u.entry(hdr, archive); err != nil {
			return fmt.Errorf("%s: %w", hdr.Name, err)
		}
	}
	u.first = false
	return nil
}

// finish sets the times of folders.
func (u *unpacker) finish() error {
	u.forgetParent()
	for rel, mtime := range u.dirTimes {
		fd, err := u.root.Open(rel, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue // a later layer removed it
		}
		err = setTimes(fd, "", mtime)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
	}
	return nil
}

func (u *unpacker) entry(hdr *tar.Header, content io.Reader) error {
	if u.entries--; u.entries < 0 {
		return fmt.Errorf("too many files: %w", errNoRoom)
	}
	rel := beneath.Clean(hdr.Name)
	base := path.Base(rel)
	if rel == "." {
		return u.rootEntry(hdr)
	}
	parent, err := u.open(path.Dir(rel))
	if err != nil {
		return err
	}
	if strings.HasPrefix(base, whiteoutPrefix) {
		return u.whiteout(parent, rel, base)
	}
	if !u.first {
		u.remember(rel)
	}
	if err := u.clear(parent, base, hdr.Typeflag); err != nil {
		return err
	}
	return u.create(parent, base, rel, hdr, content)
}

// rootEntry applies the entry "./", which some builders put first.
func (u *unpacker) rootEntry(hdr *tar.Header) error {
	if hdr.Typeflag != tar.TypeDir {
		return errors.New("is the root folder and not a folder")
	}
	fd, err := u.root.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return u.dirMeta(fd, ".", hdr)
}

// open returns the folder of an entry. Folders that the archive does not contain are
// made with mode 0755.
func (u *unpacker) open(dir string) (int, error) {
	if u.parent >= 0 && u.parentPath == dir {
		return u.parent, nil
	}
	u.forgetParent()
	fd, err := u.root.MkdirAll(dir, 0o755)
	if err != nil {
		return -1, err
	}
	u.parent, u.parentPath = fd, dir
	return fd, nil
}

// clear removes what an entry replaces. A folder keeps an existing folder.
func (u *unpacker) clear(parent int, base string, kind byte) error {
	var st unix.Stat_t
	switch err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return &os.PathError{Op: "stat", Path: base, Err: err}
	case kind == tar.TypeDir && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return nil
	}
	return beneath.RemoveAll(parent, base)
}

func (u *unpacker) create(parent int, base, rel string, hdr *tar.Header, content io.Reader) error {
	switch hdr.Typeflag {
	case tar.TypeDir:
		return u.createDir(parent, base, rel, hdr)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.createFile(parent, base, hdr, content)
	case tar.TypeLink:
		return u.createLink(parent, base, hdr.Linkname)
	case tar.TypeSymlink:
		if err := unix.Symlinkat(hdr.Linkname, parent, base); err != nil {
			return &os.PathError{Op: "symlink", Path: base, Err: err}
		}
		return nodeMeta(parent, base, hdr)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return u.createNode(parent, base, hdr)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return fmt.Errorf("entry of unknown type %q", hdr.Typeflag)
}

func (u *unpacker) createDir(parent int, base, rel string, hdr *tar.Header) error {
	if err := unix.Mkdirat(parent, base, 0o700); err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "mkdir", Path: base, Err: err}
	}
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: base, Err: err}
	}
	defer unix.Close(fd)
	return u.dirMeta(fd, rel, hdr)
}

func (u *unpacker) dirMeta(fd int, rel string, hdr *tar.Header) error {
	u.dirTimes[rel] = hdr.ModTime
	return fileMeta(fd, hdr)
}

func (u *unpacker) createFile(parent int, base string, hdr *tar.Header, content io.Reader) error {
	fd, err := unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: base, Err: err}
	}
	file := os.NewFile(uintptr(fd), base)
	defer file.Close()
	if err := u.write(file, hdr.Size, content); err != nil {
		return err
	}
	if err := fileMeta(fd, hdr); err != nil {
		return err
	}
	if err := setTimes(fd, "", hdr.ModTime); err != nil {
		return err
	}
	return file.Close()
}

// write leaves holes where the content has pages of zeros: an archive of a few
// kilobytes can hold a file of gigabytes of zeros.
func (u *unpacker) write(file *os.File, size int64, content io.Reader) error {
	if size > maxFile {
		return fmt.Errorf("a file of %d bytes: %w", size, errNoRoom)
	}
	var at, end int64
	for {
		n, err := io.ReadFull(content, u.buf)
		for from, to := range filled(u.buf[:n]) {
			if u.room -= int64(to - from); u.room < 0 {
				return errNoRoom
			}
			if _, err := file.WriteAt(u.buf[from:to], at+int64(from)); err != nil {
				return err
			}
			end = at + int64(to)
		}
		at += int64(n)
		switch {
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			if end < at {
				return file.Truncate(at)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// filled yields the beginning and the end of each part of data between pages of
// zeros.
func filled(data []byte) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		from := -1
		for at := 0; at < len(data); at += hole {
			page := data[at:min(at+hole, len(data))]
			empty := bytes.Equal(page, zeros[:len(page)])
			switch {
			case !empty && from < 0:
				from = at
			case empty && from >= 0:
				if !yield(from, at) {
					return
				}
				from = -1
			}
		}
		if from >= 0 {
			yield(from, len(data))
		}
	}
}

var zeros [hole]byte

// createLink makes a hard link. Its target is a path from the root folder; if that is
// a symbolic link, the link itself is linked.
func (u *unpacker) createLink(parent int, base, target string) error {
	rel := beneath.Clean(target)
	dir, err := u.root.OpenDir(path.Dir(rel))
	if err != nil {
		return fmt.Errorf("hard link to %s: %w", target, err)
	}
	defer unix.Close(dir)
	if err := unix.Linkat(dir, path.Base(rel), parent, base, 0); err != nil {
		return fmt.Errorf("hard link to %s: %w", target, err)
	}
	return nil
}

func (u *unpacker) createNode(parent int, base string, hdr *tar.Header) error {
	kind := map[byte]uint32{tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO}[hdr.Typeflag]
	dev := unix.Mkdev(uint32(hdr.Devmajor), uint32(hdr.Devminor))
	if err := unix.Mknodat(parent, base, kind|0o600, int(dev)); err != nil {
		return &os.PathError{Op: "mknod", Path: base, Err: err}
	}
	return nodeMeta(parent, base, hdr)
}

// whiteout removes what lower layers brought; what this layer brought stays,
// whichever came first in the archive.
func (u *unpacker) whiteout(parent int, rel, base string) error {
	switch {
	case u.first:
		return nil
	case base == opaqueMarker:
		return u.hideChildren(parent, ".", path.Dir(rel))
	case strings.HasPrefix(base, whiteoutMeta):
		return nil // AUFS's own files
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return &os.PathError{Op: "whiteout", Path: rel, Err: unix.EINVAL}
	}
	return u.hide(parent, name, path.Join(path.Dir(rel), name))
}

func (u *unpacker) hideChildren(dirfd int, name, rel string) error {
	return beneath.EachChild(dirfd, name, func(fd int, child string) error {
		return u.hide(fd, child, path.Join(rel, child))
	})
}

func (u *unpacker) hide(dirfd int, name, rel string) error {
	if _, ours := u.added[rel]; !ours {
		return beneath.RemoveAll(dirfd, name)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	return u.hideChildren(dirfd, name, rel)
}

func (u *unpacker) remember(rel string) {
	for ; rel != "."; rel = path.Dir(rel) {
		if _, known := u.added[rel]; known {
			return
		}
		u.added[rel] = struct{}{}
	}
}
