// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"bytes"
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

// tree is the content of an archive, by path in it.
type tree map[string]entry

// entry is a file of this machine, a file in memory, or a symbolic link.
type entry struct {
	source string
	data   []byte
	link   string
	mode   int64
}

func (t tree) file(name string, data []byte) { t[name] = entry{data: data, mode: 0o644} }

func (t tree) link(name, target string) { t[name] = entry{link: target, mode: 0o777} }

// program adds an executable file.
func (t tree) program(name, source string) { t[name] = entry{source: source, mode: 0o755} }

// folder adds the files of a folder, none of which is a program.
func (t tree) folder(name, source string) error {
	return filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(source, file)
		if err == nil {
			t[path.Join(name, filepath.ToSlash(below))] = entry{source: file, mode: 0o644}
		}
		return err
	})
}

// under returns the tree in a folder.
func (t tree) under(folder string) tree {
	moved := tree{}
	for name, e := range t {
		moved[path.Join(folder, name)] = e
	}
	return moved
}

// folders returns those of the entries, parents first.
func (t tree) folders() []string {
	all := map[string]bool{}
	for name := range t {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// names returns the paths of the entries in the order of the archive.
func (t tree) names() []string { return slices.Sorted(maps.Keys(t)) }

// open returns the content of a file and its size.
func (e entry) open() (io.ReadCloser, int64, error) {
	if e.source == "" {
		return io.NopCloser(bytes.NewReader(e.data)), int64(len(e.data)), nil
	}
	f, err := os.Open(e.source)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", e.source)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// writeTar writes the tree as root's files of one date. Each name begins with
// prefix.
func (t tree) writeTar(w io.Writer, prefix string, date time.Time) error {
	out := tar.NewWriter(w)
	for _, dir := range t.folders() {
		if err := out.WriteHeader(header(prefix+dir+"/", tar.TypeDir, 0o755, date)); err != nil {
			return err
		}
	}
	for _, name := range t.names() {
		if err := t[name].writeTar(out, prefix+name, date); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return out.Close()
}

func (e entry) writeTar(out *tar.Writer, name string, date time.Time) error {
	if e.link != "" {
		h := header(name, tar.TypeSymlink, e.mode, date)
		h.Linkname = e.link
		return out.WriteHeader(h)
	}
	content, size, err := e.open()
	if err != nil {
		return err
	}
	defer content.Close()
	h := header(name, tar.TypeReg, e.mode, date)
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
