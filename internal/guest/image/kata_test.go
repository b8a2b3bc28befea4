// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

func addPauseBundle(t *testing.T, dir string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, pauseConfig), []byte("{}"))
	writeFile(t, filepath.Join(dir, "pause_bundle/rootfs/pause"), []byte("program"))
}

// TestKataFolder: what is missing, and what would not be used, are errors by their names.
func TestKataFolder(t *testing.T) {
	all := []string{"kata-agent", "attestation-agent", "confidential-data-hub", "api-server-rest", "pause_bundle/config.json", "pause_bundle/rootfs/pause"}
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(names, name) })
	}
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"all":              {append(all, "default-policy.rego", "lib64/libx.so.1"), ""},
		"agent alone":      {without("attestation-agent", "confidential-data-hub", "api-server-rest"), ""},
		"no agent":         {without("kata-agent"), "no kata-agent"},
		"no pause":         {without("pause_bundle/config.json"), "no pause_bundle/config.json, which kata-agent needs"},
		"REST without hub": {without("confidential-data-hub"), "no confidential-data-hub, which api-server-rest needs"},
		"misspelt":         {append(without("confidential-data-hub", "api-server-rest"), "confidential-datahub"), "confidential-datahub is none of"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Guest: GuestKata, GuestBinaries: t.TempDir()}
			for _, file := range c.files {
				writeFile(t, filepath.Join(o.GuestBinaries, file), nil)
			}
			err := o.checkGuest()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestGuestOptionsFit(t *testing.T) {
	for _, o := range []Options{{Guest: "other"}, {Guest: GuestKata}, {GuestBinaries: "x"}, {Guest: GuestKata, GuestBinaries: "x", Confidential: true}} {
		if err := o.checkGuest(); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// elfFile returns the headers of a program.
func elfFile(t *testing.T, machine elf.Machine, loader string) []byte {
	t.Helper()
	head := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	prog := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(loader) + 1)}
	if loader == "" {
		prog.Type, prog.Filesz = uint32(elf.PT_LOAD), 0
	}
	data, err := binary.Append(nil, binary.LittleEndian, head)
	if err == nil {
		data, err = binary.Append(data, binary.LittleEndian, prog)
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(data, loader+"\x00"...)
}

func TestProgramsAreOfTheImagesArchitecture(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"static":  {elfFile(t, elf.EM_X86_64, ""), ""},
		"dynamic": {elfFile(t, elf.EM_X86_64, loaderPath), ""},
		"musl":    {elfFile(t, elf.EM_X86_64, "/lib/ld-musl-x86_64.so.1"), "needs the loader /lib/ld-musl-x86_64.so.1"},
		"arm64":   {elfFile(t, elf.EM_AARCH64, ""), "EM_AARCH64"},
		"script":  {[]byte("#!/bin/sh\n"), "not an ELF program"},
		"empty":   {nil, "not an ELF program"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kata-agent")
			writeFile(t, file, c.data)
			err := checkELF(file)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file)) {
				t.Errorf("error %v, want %q and the file", err, c.want)
			}
		})
	}
}

// TestVersionsOfLibraries has this machine's libc, whose versions are listed in itself.
func TestVersionsOfLibraries(t *testing.T) {
	libc := "/lib/x86_64-linux-gnu/libc.so.6"
	if _, err := os.Stat(libc); err != nil {
		t.Skipf("%v: this test needs Debian on amd64", err)
	}
	need := func(version string) []elf.DynamicVersionNeed {
		return []elf.DynamicVersionNeed{{Name: "libc.so.6", Needs: []elf.DynamicVersionDep{{Dep: "GLIBC_2.2.5"}, {Dep: version}}}}
	}
	if err := checkVersions(libc, "libc.so.6", need("GLIBC_2.34")); err != nil {
		t.Error(err)
	}
	if err := checkVersions(libc, "libc.so.6", need("GLIBC_9.1")); err == nil || !strings.Contains(err.Error(), "it needs GLIBC_9.1 of the shared library libc.so.6") {
		t.Errorf("error %v", err)
	}
}

func TestTreeKeepsModesAndLinks(t *testing.T) {
	dir, tree := t.TempDir(), newRootfs()
	writeFile(t, filepath.Join(dir, "bin/pause"), []byte("program"))
	if err := os.Symlink("bin/pause", filepath.Join(dir, "pause")); err != nil {
		t.Fatal(err)
	}
	if err := tree.copyTree("/pause_bundle/rootfs", dir); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range tree.sorted() {
		got = append(got, e.name+" "+string(e.data))
	}
	if diff := cmp.Diff([]string{"pause_bundle ", "pause_bundle/rootfs ", "pause_bundle/rootfs/bin ", "pause_bundle/rootfs/bin/pause program", "pause_bundle/rootfs/pause bin/pause"}, got); diff != "" {
		t.Error(diff)
	}
	if mode := tree.entries["pause_bundle/rootfs/bin/pause"].mode; mode != typeFile|0o755 {
		t.Errorf("mode %o", mode)
	}
}
