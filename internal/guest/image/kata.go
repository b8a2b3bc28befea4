// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/internal/guest/kataguest"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Guests that an image can have.
const (
	GuestOutrigger = "outrigger" // podvm-agent
	GuestKata      = "kata"      // Kata's agent and components of Confidential Containers, from Options.GuestBinaries
)

// kataPrograms are the programs of a folder with Kata's guest, and what else each needs there.
var kataPrograms = []struct {
	name  string
	needs []string
}{
	{kataguest.Agent, []string{pauseConfig, "pause_bundle/rootfs"}},
	{kataguest.AttestationAgent, nil},
	{kataguest.DataHub, nil},
	{kataguest.APIServer, []string{kataguest.AttestationAgent, kataguest.DataHub}},
}

// What else the folder may have: the OCI bundle of the pause container, a policy for pods that bring none, and shared
// libraries that Debian's packages of the image lack.
const (
	pauseConfig   = "pause_bundle/config.json"
	defaultPolicy = "default-policy.rego"
	ownLibraries  = "lib64"
)

// checkGuest returns an error if the options of the guest do not fit each other, or the folder does not fit the guest.
func (o *Options) checkGuest() error {
	switch {
	case !slices.Contains([]string{"", GuestOutrigger, GuestKata}, o.Guest):
		return program.Usagef("--guest %q: want %s or %s", o.Guest, GuestOutrigger, GuestKata)
	case (o.Guest == GuestKata) != (o.GuestBinaries != ""):
		return program.Usagef("--guest %s and --guest-binaries DIR, with %s in it, go together", GuestKata, kataguest.Agent)
	case o.Guest != GuestKata:
		return nil
	case o.Confidential:
		return program.Usagef("--confidential is for podvm-agent: with --guest %s the programs of --guest-binaries attest and enforce policies", GuestKata)
	}
	return checkKataFolder(o.GuestBinaries)
}

// checkKataFolder returns an error that names what the folder lacks, or has and would not be used.
func checkKataFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("--guest-binaries: %w", err)
	}
	known := []string{path.Dir(pauseConfig), defaultPolicy, ownLibraries}
	var missing []string
	for _, p := range kataPrograms {
		known = append(known, p.name)
		if !has(dir, p.name) && p.name != kataguest.Agent {
			continue
		}
		if !has(dir, p.name) {
			missing = append(missing, p.name)
		}
		for _, name := range p.needs {
			if !has(dir, name) {
				missing = append(missing, fmt.Sprintf("%s, which %s needs", name, p.name))
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("--guest-binaries %s has no %s", dir, strings.Join(missing, "; no "))
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			return fmt.Errorf("--guest-binaries %s: %s is none of %s", dir, e.Name(), strings.Join(known, ", "))
		}
	}
	return nil
}

func has(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// addKata puts Kata's guest into the image. Shared libraries come from the folder, or else from Debian's packages.
func (b *builder) addKata(ctx context.Context) error {
	if b.Guest != GuestKata {
		return nil
	}
	pkgs, err := b.unpacked(ctx)
	if err != nil {
		return err
	}
	pkgs = slices.Insert(pkgs, 0, &debPackage{Name: "--guest-binaries", root: b.GuestBinaries})
	for _, p := range kataPrograms {
		if has(b.GuestBinaries, p.name) {
			if err := b.addKataProgram(p.name, pkgs); err != nil {
				return err
			}
		}
	}
	b.tree.file(kataguest.AgentConfig, 0o644, []byte(kataguest.AgentSettings))
	b.tree.file(kataguest.Policy, 0o644, []byte(kataguest.AllowAll))
	if has(b.GuestBinaries, defaultPolicy) {
		if err := b.tree.copyIn(kataguest.Policy, filepath.Join(b.GuestBinaries, defaultPolicy), 0o644); err != nil {
			return err
		}
	}
	if err := b.tree.copyIn(path.Join(kataguest.PauseBundle, "config.json"), filepath.Join(b.GuestBinaries, pauseConfig), 0o644); err != nil {
		return err
	}
	return b.tree.copyTree(path.Join(kataguest.PauseBundle, "rootfs"), filepath.Join(b.GuestBinaries, "pause_bundle/rootfs"))
}

func (b *builder) addKataProgram(name string, pkgs []*debPackage) error {
	src := filepath.Join(b.GuestBinaries, name)
	if err := checkELF(src); err != nil {
		return err
	}
	if err := b.tree.addProgram(path.Join(kataguest.Programs, name), src, pkgs); err != nil {
		return fmt.Errorf("%s: %w; build it as a static program, or put the library into %s", src, err, filepath.Join(b.GuestBinaries, ownLibraries))
	}
	sum, err := wholefile.SHA256(src)
	if err != nil {
		return err
	}
	info, err := os.Stat(src)
	if err != nil {
		return err
	}
	b.summary.GuestBinaries = append(b.summary.GuestBinaries, File{Name: name, Size: info.Size(), SHA256: sum})
	return nil
}

// checkELF returns an error if a file is not a program that the image's kernel and loader can start.
func checkELF(file string) error {
	f, err := elf.Open(file)
	if errors.As(err, new(*fs.PathError)) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s is not an ELF program: %w", file, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fmt.Errorf("%s is %v for %v, want a program for %v", file, f.Type, f.Machine, elf.EM_X86_64)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		loader := make([]byte, min(p.Filesz, 256))
		if _, err := p.ReadAt(loader, 0); err != nil {
			return fmt.Errorf("loader of %s: %w", file, err)
		}
		if got := strings.TrimRight(string(loader), "\x00"); got != loaderPath {
			return fmt.Errorf("%s needs the loader %s, the image has %s: build it for glibc, or as a static program", file, got, loaderPath)
		}
	}
	return nil
}

// copyTree adds a folder of the build machine: its files, folders and symbolic links.
func (r *rootfs) copyTree(name, src string) error {
	return filepath.WalkDir(src, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, file)
		if err != nil {
			return err
		}
		to := path.Join(name, rel)
		info, err := e.Info()
		switch {
		case err != nil:
			return err
		case e.IsDir():
			r.mkdir(to)
		case e.Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			r.symlink(to, target)
		case e.Type().IsRegular():
			return r.copyIn(to, file, info.Mode())
		default:
			return fmt.Errorf("add %s to the image: %s is not a file, folder or symbolic link", to, file)
		}
		return nil
	})
}
