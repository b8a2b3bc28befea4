// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// copyTree copies a folder, links, owners, attributes and all, by packing it
// into an archive for the unpacker that once made it.
func copyTree(ctx context.Context, from, to string) error {
	unpacker, err := newUnpacker(to)
	if err != nil {
		return err
	}
	defer unpacker.close()
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		w.CloseWithError(pack(ctx, from, w))
	}()
	err = unpacker.layer(r)
	r.CloseWithError(errors.New("unpacking failed"))
	<-packed
	if err == nil {
		err = unpacker.finish()
	}
	if err != nil {
		return fmt.Errorf("copy image: %w", err)
	}
	return nil
}

// inode tells which names are the same file.
type inode struct{ dev, ino uint64 }

func pack(ctx context.Context, dir string, w io.Writer) error {
	archive := tar.NewWriter(w)
	links := make(map[inode]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return packEntry(archive, path, rel, entry, links)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func packEntry(archive *tar.Writer, path, rel string, entry fs.DirEntry, links map[inode]string) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	hdr, err := header(path, rel, info, links)
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(hdr); err != nil || hdr.Typeflag != tar.TypeReg {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}

func header(path, rel string, info fs.FileInfo, links map[inode]string) (*tar.Header, error) {
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if target, err = os.Readlink(path); err != nil {
			return nil, err
		}
	}
	hdr, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return nil, err
	}
	hdr.Name, hdr.Format = rel, tar.FormatPAX
	// Names mean nothing here, and looking them up reads files.
	hdr.Uname, hdr.Gname = "", ""
	st := info.Sys().(*syscall.Stat_t)
	if info.Mode().IsRegular() && st.Nlink > 1 {
		id := inode{dev: st.Dev, ino: st.Ino}
		if first, ok := links[id]; ok {
			hdr.Typeflag, hdr.Linkname, hdr.Size = tar.TypeLink, first, 0
			return hdr, nil
		}
		links[id] = rel
	}
	return hdr, xattrs(path, hdr)
}

func xattrs(path string, hdr *tar.Header) error {
	names := make([]byte, 64<<10) // XATTR_LIST_MAX
	n, err := unix.Llistxattr(path, names)
	if err != nil || n == 0 {
		return nil // a file system without attributes
	}
	value := make([]byte, 64<<10) // XATTR_SIZE_MAX
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		if !wantedXattr(name) {
			continue
		}
		size, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return &os.PathError{Op: "getxattr " + name, Path: path, Err: err}
		}
		if hdr.PAXRecords == nil {
			hdr.PAXRecords = make(map[string]string)
		}
		hdr.PAXRecords[xattrPrefix+name] = string(value[:size])
	}
	return nil
}
