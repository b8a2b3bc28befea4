// SPDX-License-Identifier: Apache-2.0

// Package demoimage builds a small container image from Debian's
// busybox-static, so that pods can run where no registry is reachable.
package demoimage

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/filetree"
	"github.com/outrigger/outrigger/internal/ociimage"
)

// Tag names the image in its layout.
const Tag = "demo"

// Folder is the image's place beside the programs that run it.
const Folder = "demo-image"

// Options say what goes into the image.
type Options struct {
	// Busybox is a static busybox; empty means /bin/busybox.
	Busybox string
	// Extra adds executables: file name in /bin to path on this host.
	Extra map[string]string
}

// broken are applets of Debian's static busybox that crash, because glibc's
// name service cannot be linked statically.
var broken = []string{"wget", "nslookup", "ping6", "telnet", "ftpget", "ftpput"}

// Greeting is what the image prints when it is run without a command.
const Greeting = "Hello from a pod in its own VM."

// Build writes an OCI layout into dir, in place of what was there. Equal
// inputs give equal bytes.
func Build(dir string, opts Options) error {
	img, err := Image(opts)
	if err != nil {
		return fmt.Errorf("demo image: %w", err)
	}
	if _, err := ociimage.Write(dir, Tag, img); err != nil {
		return fmt.Errorf("demo image: %w", err)
	}
	return nil
}

// Image makes the image in memory.
func Image(opts Options) (v1.Image, error) {
	if opts.Busybox == "" {
		opts.Busybox = "/bin/busybox"
	}
	content, err := layer(opts)
	if err != nil {
		return nil, err
	}
	return ociimage.OfArchive(content, runtime.GOARCH, v1.Config{
		Env:        []string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin"},
		Cmd:        []string{"sh", "-c", "echo '" + Greeting + "'; uname -a"},
		WorkingDir: "/",
	})
}

// epoch dates all files: builds must not differ by their time.
var epoch = time.Unix(0, 0).UTC()

// layer returns the root file system as a tar archive.
func layer(opts Options) ([]byte, error) {
	names, err := applets(opts.Busybox)
	if err != nil {
		return nil, err
	}
	t := filetree.Tree{
		"tmp": {Folder: true, Mode: 0o1777}, "var/tmp": {Folder: true, Mode: 0o1777}, "root": {Folder: true, Mode: 0o700}, "home/app": {Folder: true, Owner: 1000},
	}
	for _, dir := range []string{"dev", "proc", "sbin", "sys", "usr/bin", "usr/sbin"} {
		t[dir] = filetree.Entry{Folder: true}
	}
	t.Program("bin/busybox", opts.Busybox)
	t.File("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"))
	t.File("etc/group", []byte("root:x:0:\napp:x:1000:\nstaff:x:50:app\nnogroup:x:65534:\n"))
	t.File("etc/nsswitch.conf", []byte("hosts: files dns\n"))
	for _, applet := range names {
		t.Link("bin/"+applet, "busybox")
	}
	for name, source := range opts.Extra {
		t.Program(path.Join("bin", name), source)
	}
	var out bytes.Buffer
	err = t.WriteTar(&out, "", epoch)
	return out.Bytes(), err
}

// applets returns the names under which a busybox is called.
func applets(file string) ([]string, error) {
	const fix = "apt-get install busybox-static"
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("busybox is needed: %w; %s", err, fix)
	}
	if !isStatic(file) {
		return nil, fmt.Errorf("%s is not static; %s", file, fix)
	}
	out, err := exec.Command(file, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w; %s", file, err, fix)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(a string) bool {
		return a == "busybox" || slices.Contains(broken, a)
	}), nil
}

// isStatic reports whether an ELF file needs no dynamic loader.
func isStatic(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
