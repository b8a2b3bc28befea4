// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"archive/tar"
	"bytes"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// epoch dates everything, so that equal files give equal images.
var epoch = time.Unix(0, 0).UTC()

// links are in every image: runtimes and shims hand over both paths.
var links = map[string]string{"/var/run": "/run"}

// archive is the root file system as a tar.
func (f Files) archive() ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, dir := range f.folders() {
		mode := int64(0o755)
		if dir == "/tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(header(dir+"/", tar.TypeDir, mode)); err != nil {
			return nil, err
		}
	}
	for _, inside := range slices.Sorted(maps.Keys(links)) {
		h := header(inside, tar.TypeSymlink, 0o777)
		h.Linkname = links[inside]
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
	}
	for _, inside := range slices.Sorted(maps.Keys(f)) {
		if err := addFile(w, inside, f[inside]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}

// folders are those of the files, parents first, and those that programs
// expect to be there.
func (f Files) folders() []string {
	all := map[string]bool{"/tmp": true, "/run": true, "/var": true}
	for inside := range f {
		for dir := path.Dir(inside); dir != "/"; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func addFile(w *tar.Writer, inside, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	// Modes of this machine depend on its umask.
	mode := int64(0o644)
	if info.Mode().Perm()&0o111 != 0 {
		mode = 0o755
	}
	h := header(inside, tar.TypeReg, mode)
	h.Size = int64(len(data))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

func header(inside string, kind byte, mode int64) *tar.Header {
	return &tar.Header{Name: strings.TrimPrefix(inside, "/"), Typeflag: kind, Mode: mode, ModTime: epoch, Format: tar.FormatUSTAR}
}
