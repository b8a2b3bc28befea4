// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// File types in the mode field of an archive entry (cpio(5), stat(2)).
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	typeChar = 0o020000
)

// entry is one file of the image; its name has no leading slash.
type entry struct {
	name         string
	mode         uint32
	data         []byte
	major, minor uint32
}

// rootfs is the image's file tree in memory. Parents are made as needed.
type rootfs struct {
	entries map[string]*entry
}

func newRootfs() *rootfs {
	return &rootfs{entries: map[string]*entry{}}
}

func (r *rootfs) put(e *entry) {
	e.name = strings.TrimPrefix(path.Clean(e.name), "/")
	r.mkdir(path.Dir(e.name))
	r.entries[e.name] = e
}

func (r *rootfs) mkdir(name string) {
	r.mkdirMode(name, 0o755)
}

func (r *rootfs) mkdirMode(name string, perm uint32) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if name == "." || name == "" || r.entries[name] != nil {
		return
	}
	r.mkdir(path.Dir(name))
	r.entries[name] = &entry{name: name, mode: typeDir | perm}
}

func (r *rootfs) file(name string, perm fs.FileMode, data []byte) {
	r.put(&entry{name: name, mode: typeFile | uint32(perm.Perm()), data: data})
}

func (r *rootfs) symlink(name, target string) {
	r.put(&entry{name: name, mode: typeLink | 0o777, data: []byte(target)})
}

func (r *rootfs) charDevice(name string, perm, major, minor uint32) {
	r.put(&entry{name: name, mode: typeChar | perm, major: major, minor: minor})
}

// copyIn adds a file of the build machine, following symbolic links.
func (r *rootfs) copyIn(name, src string, perm fs.FileMode) error {
	data, err := os.ReadFile(src)
	if err != nil {
		return fmt.Errorf("add %s to the image: %w", name, err)
	}
	r.file(name, perm, data)
	return nil
}

// sorted lists the entries by name, so that parents come before children.
func (r *rootfs) sorted() []*entry {
	return slices.SortedFunc(maps.Values(r.entries), func(a, b *entry) int { return strings.Compare(a.name, b.name) })
}

// cpioPad is the alignment of headers and contents in the newc format.
const cpioPad = 4

// cpioWriter writes the "newc" archive that the kernel unpacks as initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst). Owners are
// root, inode numbers count up and every file has the same time, so equal
// trees give equal bytes.
type cpioWriter struct {
	w     *bufio.Writer
	n     int64
	inode uint32
	mtime uint32
}

// writeCPIO writes the tree as one archive.
func writeCPIO(w io.Writer, tree *rootfs, mtime time.Time) error {
	c := &cpioWriter{w: bufio.NewWriterSize(w, 1<<20), mtime: uint32(mtime.Unix())}
	for _, e := range tree.sorted() {
		if err := c.entry(e); err != nil {
			return fmt.Errorf("write %s to the archive: %w", e.name, err)
		}
	}
	if err := c.entry(&entry{name: "TRAILER!!!"}); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return c.w.Flush()
}

func (c *cpioWriter) entry(e *entry) error {
	c.inode++
	links := 1
	if e.mode&typeDir != 0 && e.mode&typeFile != typeFile {
		links = 2
	}
	// inode mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
	c.printf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.inode, e.mode, 0, 0, links, c.mtime, len(e.data), 0, 0, e.major, e.minor, len(e.name)+1, 0)
	c.printf("%s\x00", e.name)
	c.pad()
	n, err := c.w.Write(e.data)
	c.n += int64(n)
	c.pad()
	return err
}

func (c *cpioWriter) printf(format string, args ...any) {
	n, _ := fmt.Fprintf(c.w, format, args...)
	c.n += int64(n)
}

func (c *cpioWriter) pad() {
	for c.n%cpioPad != 0 {
		_ = c.w.WriteByte(0)
		c.n++
	}
}
