// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Files are those of an image: absolute path there to file on this machine.
type Files map[string]string

// ParseFiles reads words of the form /PATH/IN/IMAGE=FILE. A folder stands for
// all files in it.
func ParseFiles(pairs []string) (Files, error) {
	f := Files{}
	for _, pair := range pairs {
		inside, source, ok := strings.Cut(pair, "=")
		if !ok || !path.IsAbs(inside) || path.Clean(inside) != inside || inside == "/" {
			return nil, fmt.Errorf("%q is not /PATH/IN/IMAGE=FILE", pair)
		}
		if err := f.add(inside, source); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f Files) add(inside, source string) error {
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		f[inside] = source
		return nil
	}
	return filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(source, file)
		if err == nil {
			f[path.Join(inside, filepath.ToSlash(below))] = file
		}
		return err
	})
}

// AddLibraries adds what the dynamic linker would load for the files, at the
// paths at which it looks.
func (f Files) AddLibraries() error {
	for _, source := range slices.Sorted(maps.Values(f)) {
		libraries, err := librariesOf(source)
		if err != nil {
			return err
		}
		for _, library := range libraries {
			f[library] = library
		}
	}
	return nil
}

func librariesOf(source string) ([]string, error) {
	if !isELF(source) {
		return nil, nil
	}
	if !strings.Contains(source, "/") {
		source = "./" + source // ldd takes a bare name as one to search
	}
	out, err := exec.Command("ldd", source).CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "not a dynamic executable") {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", source, err, bytes.TrimSpace(out))
	}
	return linked(string(out)), nil
}

// isELF spares ldd, which is a script, all other files.
func isELF(source string) bool {
	file, err := os.Open(source)
	if err != nil {
		return false
	}
	defer file.Close()
	magic := make([]byte, 4)
	_, err = file.Read(magic)
	return err == nil && string(magic) == "\x7fELF"
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
