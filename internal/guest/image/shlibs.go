// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraryFolders are where amd64 Debian keeps shared libraries.
var libraryFolders = []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64", "usr/lib64"}

// loaderPath is the ELF interpreter of amd64 programs (System V ABI).
const loaderPath = "/lib64/ld-linux-x86-64.so.2"

// addProgram puts a program, or a library, and every shared library it needs, directly or
// not, into the image. Libraries are searched in the packages' trees.
func (r *rootfs) addProgram(name, src string, pkgs []*debPackage) error {
	if err := r.copyIn(name, src, 0o755); err != nil {
		return err
	}
	interpreted, libs, needs, err := elfNeeds(src)
	if err != nil {
		return err
	}
	if interpreted {
		loader, err := findIn(pkgs, loaderPath[1:])
		if err != nil {
			return fmt.Errorf("loader of %s: %w", name, err)
		}
		if err := r.copyIn(loaderPath, loader, 0o755); err != nil {
			return err
		}
	}
	for _, lib := range libs {
		if strings.HasPrefix(lib, "ld-linux") {
			continue
		}
		src, err := findLibrary(pkgs, lib)
		if err != nil {
			return err
		}
		if err := checkVersions(src, lib, needs); err != nil {
			return err
		}
		target := filepath.Join("usr/lib/x86_64-linux-gnu", lib)
		if r.entries[target] != nil {
			continue
		}
		if err := r.addProgram(target, src, pkgs); err != nil {
			return err
		}
	}
	return nil
}

func findLibrary(pkgs []*debPackage, lib string) (string, error) {
	for _, dir := range libraryFolders {
		if src, err := findIn(pkgs, filepath.Join(dir, lib)); err == nil {
			return src, nil
		}
	}
	return "", fmt.Errorf("shared library %s is in none of the packages %s", lib, packageNames(pkgs))
}

// checkVersions returns an error if a library lacks versions that a program needs, as when the program was
// built with a newer one.
func checkVersions(src, lib string, needs []elf.DynamicVersionNeed) error {
	i := slices.IndexFunc(needs, func(n elf.DynamicVersionNeed) bool { return n.Name == lib })
	if i < 0 {
		return nil
	}
	f, err := elf.Open(src)
	if err != nil {
		return fmt.Errorf("read %s: %w", src, err)
	}
	defer f.Close()
	versions, err := f.DynamicVersions()
	if err != nil {
		return fmt.Errorf("versions of %s: %w", src, err)
	}
	for _, need := range needs[i].Needs {
		if !slices.ContainsFunc(versions, func(v elf.DynamicVersion) bool { return v.Name == need.Dep }) {
			return fmt.Errorf("it needs %s of the shared library %s, which that of the image does not have", need.Dep, lib)
		}
	}
	return nil
}

func elfNeeds(file string) (interpreted bool, libs []string, versions []elf.DynamicVersionNeed, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return false, nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		interpreted = interpreted || p.Type == elf.PT_INTERP
	}
	libs, err = f.ImportedLibraries()
	if err == nil && f.SectionByType(elf.SHT_GNU_VERNEED) != nil {
		versions, err = f.DynamicVersionNeeds()
	}
	if err != nil {
		return false, nil, nil, fmt.Errorf("libraries of %s: %w", file, err)
	}
	return interpreted, libs, versions, nil
}

// findIn looks a path up in the packages' trees. Absolute links in a package
// would lead to the build machine's files, so they are resolved inside it.
func findIn(pkgs []*debPackage, name string) (string, error) {
	for _, p := range pkgs {
		file := filepath.Join(p.root, name)
		target, err := os.Readlink(file)
		if err == nil && filepath.IsAbs(target) {
			file = filepath.Join(p.root, target)
		}
		if _, err := os.Stat(file); err == nil {
			p.used = true
			return file, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s is in none of the packages %s", name, packageNames(pkgs))
}

func packageNames(pkgs []*debPackage) string {
	names := make([]string, len(pkgs))
	for i, p := range pkgs {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}
