// SPDX-License-Identifier: Apache-2.0

// Package demoimage builds a small container image from Debian's
// busybox-static, so that pods can run where no registry is reachable.
package demoimage

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

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
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, l); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, config(img))
}

func config(img v1.Image) *v1.ConfigFile {
	cfg, err := img.ConfigFile()
	if err != nil { // an image made in memory has one
		panic(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Created = v1.Time{Time: epoch}
	cfg.History = nil
	cfg.Config = v1.Config{
		Env:        []string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin"},
		Cmd:        []string{"sh", "-c", "echo '" + Greeting + "'; uname -a"},
		WorkingDir: "/",
	}
	return cfg
}

// epoch dates all files: builds must not differ by their time.
var epoch = time.Unix(0, 0).UTC()

// layer returns the root file system as a tar archive.
func layer(opts Options) ([]byte, error) {
	bin, applets, err := readBusybox(opts.Busybox)
	if err != nil {
		return nil, err
	}
	files := map[string]entry{
		"bin/busybox":       {mode: 0o755, data: bin},
		"etc/passwd":        {mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		"etc/group":         {mode: 0o644, data: []byte("root:x:0:\napp:x:1000:\nstaff:x:50:app\nnogroup:x:65534:\n")},
		"etc/nsswitch.conf": {mode: 0o644, data: []byte("hosts: files dns\n")},
	}
	for _, dir := range []string{"bin", "dev", "etc", "home", "proc", "root", "sbin", "sys", "tmp", "usr", "usr/bin", "usr/sbin", "var", "var/tmp"} {
		files[dir+"/"] = entry{mode: 0o755}
	}
	files["tmp/"], files["var/tmp/"], files["root/"] = entry{mode: 0o1777}, entry{mode: 0o1777}, entry{mode: 0o700}
	files["home/app/"] = entry{mode: 0o755, id: 1000}
	for _, applet := range applets {
		files["bin/"+applet] = entry{mode: 0o777, link: "busybox"}
	}
	for name, source := range opts.Extra {
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		files[path.Join("bin", name)] = entry{mode: 0o755, data: data}
	}
	return archive(files)
}

type entry struct {
	mode int64
	id   int
	data []byte
	link string
}

func readBusybox(file string) ([]byte, []string, error) {
	const fix = "apt-get install busybox-static"
	bin, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("busybox is needed: %w; %s", err, fix)
	}
	if !isStatic(file) {
		return nil, nil, fmt.Errorf("%s is not static; %s", file, fix)
	}
	out, err := exec.Command(file, "--list").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%s --list: %w; %s", file, err, fix)
	}
	applets := slices.DeleteFunc(strings.Fields(string(out)), func(a string) bool {
		return a == "busybox" || slices.Contains(broken, a)
	})
	return bin, applets, nil
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

func archive(files map[string]entry) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		e := files[name]
		h := &tar.Header{Name: name, Mode: e.mode, Size: int64(len(e.data)), Typeflag: tar.TypeReg, ModTime: epoch, Uid: e.id, Gid: e.id, Format: tar.FormatUSTAR}
		switch {
		case strings.HasSuffix(name, "/"):
			h.Typeflag = tar.TypeDir
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}
