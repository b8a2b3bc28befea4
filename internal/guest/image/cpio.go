// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"fmt"
	"io"
	"time"
)

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
