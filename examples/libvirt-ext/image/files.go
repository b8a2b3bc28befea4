// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

// files are the image's: absolute path to file on this machine.
type files map[string]string

func parse(pairs []string) (files, error) {
	f := files{}
	for _, pair := range pairs {
		inside, source, ok := strings.Cut(pair, "=")
		if !ok || !path.IsAbs(inside) || path.Clean(inside) != inside || inside == "/" {
			return nil, fmt.Errorf("%q is not /PATH/IN/IMAGE=FILE", pair)
		}
		f[inside] = source
	}
	return f, nil
}

// addLibraries adds what the dynamic linker would load for the files, at the
// paths at which it looks.
func (f files) addLibraries() error {
	for _, source := range slices.Sorted(maps.Values(f)) {
		if !strings.Contains(source, "/") {
			source = "./" + source // ldd takes a bare name as one to search
		}
		out, err := exec.Command("ldd", source).CombinedOutput()
		if err != nil {
			if strings.Contains(string(out), "not a dynamic executable") {
				continue
			}
			return fmt.Errorf("ldd %s: %w: %s", source, err, bytes.TrimSpace(out))
		}
		for _, library := range linked(string(out)) {
			f[library] = library
		}
	}
	return nil
}

var libraryPath = regexp.MustCompile(`(?m)(/\S+) \(0x[0-9a-f]+\)$`)

// linked reads the lines "libc.so.6 => /lib/libc.so.6 (0x7f00)" of ldd.
func linked(text string) []string {
	var paths []string
	for _, match := range libraryPath.FindAllStringSubmatch(text, -1) {
		paths = append(paths, match[1])
	}
	return paths
}

// archive is the root file system as a tar.
func (f files) archive() ([]byte, error) {
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
	for _, inside := range slices.Sorted(maps.Keys(f)) {
		if err := add(w, inside, f[inside]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}

// folders are those of the files, parents first, and /tmp: the loader copies a
// verified .so there.
func (f files) folders() []string {
	all := map[string]bool{"/tmp": true}
	for inside := range f {
		for dir := path.Dir(inside); dir != "/"; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func add(w *tar.Writer, inside, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	// Plugins that others can write to are refused, whatever the umask was.
	h := header(inside, tar.TypeReg, int64(info.Mode().Perm()&^0o022))
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
