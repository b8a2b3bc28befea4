// SPDX-License-Identifier: Apache-2.0

// Package filetree writes archives whose bytes depend on nothing but the content of the
// files: not on their owners, times and order on this machine.
package filetree

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// Tree is the content of an archive, by path in it.
type Tree map[string]Entry

// Entry is a file of this machine, a file in memory, a symbolic link or a folder. Folders
// that something is in need no entry.
type Entry struct {
	Source string
	Data   []byte
	Link   string
	Folder bool
	Mode   int64
	// Owner is the user and group of a folder that is not root's.
	Owner int
}

// File adds a file in memory.
func (t Tree) File(name string, data []byte) { t[name] = Entry{Data: data, Mode: 0o644} }

// Link adds a symbolic link.
func (t Tree) Link(name, target string) { t[name] = Entry{Link: target, Mode: 0o777} }

// Program adds an executable file.
func (t Tree) Program(name, source string) { t[name] = Entry{Source: source, Mode: 0o755} }

// Copy adds the files of a folder, none of which is a program.
func (t Tree) Copy(name, source string) error {
	return filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(source, file)
		if err == nil {
			t[path.Join(name, filepath.ToSlash(below))] = Entry{Source: file, Mode: 0o644}
		}
		return err
	})
}

// Under returns the tree in a folder.
func (t Tree) Under(folder string) Tree {
	moved := Tree{}
	for name, e := range t {
		moved[path.Join(folder, name)] = e
	}
	return moved
}

// Folders returns those of the entries, parents first.
func (t Tree) Folders() []string {
	all := map[string]bool{}
	for name, e := range t {
		if e.Folder {
			all[name] = true
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Names returns the paths of files and links in the order of the archive.
func (t Tree) Names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t)), func(name string) bool { return t[name].Folder })
}

// Open returns the content of a file and its size.
func (e Entry) Open() (io.ReadCloser, int64, error) {
	if e.Source == "" {
		return io.NopCloser(bytes.NewReader(e.Data)), int64(len(e.Data)), nil
	}
	f, err := os.Open(e.Source)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", e.Source)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// WriteTar writes the tree as files of one date. Each name begins with
// prefix.
func (t Tree) WriteTar(w io.Writer, prefix string, date time.Time) error {
	out := tar.NewWriter(w)
	for _, dir := range t.Folders() {
		h := header(prefix+dir+"/", tar.TypeDir, cmp.Or(t[dir].Mode, 0o755), date)
		if owner := t[dir].Owner; owner != 0 {
			h.Uid, h.Gid, h.Uname, h.Gname = owner, owner, "", ""
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
	}
	for _, name := range t.Names() {
		if err := t[name].writeTar(out, prefix+name, date); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return out.Close()
}

func (e Entry) writeTar(out *tar.Writer, name string, date time.Time) error {
	if e.Link != "" {
		h := header(name, tar.TypeSymlink, e.Mode, date)
		h.Linkname = e.Link
		return out.WriteHeader(h)
	}
	content, size, err := e.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	h := header(name, tar.TypeReg, e.Mode, date)
	h.Size = size
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return err
}

func header(name string, kind byte, mode int64, date time.Time) *tar.Header {
	return &tar.Header{
		Name: name, Typeflag: kind, Mode: mode, ModTime: date, Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
	}
}
