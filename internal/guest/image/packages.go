// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/internal/wholefile"
)

// Packages of the image beside the kernel's.
const (
	runtime  = "crun"             // the OCI runtime
	ext4     = "e2fsprogs"        // makes and checks the file systems of volumes
	busybox  = "busybox-static"   // of a debug image
	bootStub = "systemd-boot-efi" // of a disk
)

// packageCache holds downloaded .deb files and their unpacked trees.
type packageCache struct {
	dir     string
	log     func(format string, args ...any)
	targets map[string]aptFile // by package
	// lists is apt's setting of the file in which it caches its parsed lists. Debian's
	// container images have no such file, so that each call would parse for two seconds.
	// apt writes it again when its lists have changed.
	lists string
}

// debPackage is one unpacked package.
type debPackage struct {
	Name string `json:"name"`
	// File is the .deb's base name, which holds the version.
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	root   string
	used   bool // a file of it is in the image
}

// Copyright returns the file that says whose the package is and under which
// licence.
func (p *debPackage) Copyright() ([]byte, error) {
	return os.ReadFile(filepath.Join(p.root, "usr/share/doc", p.Name, "copyright"))
}

// Debian's metapackages, which depend on the newest kernel of a series.
const (
	kernelMeta = "linux-image-cloud-amd64"
	// confidentialMeta has configfs-tsm, which Debian 12's default lacks. It is in Debian 12's security archive, of
	// which all machines have the address. In Debian 13 kernelMeta is of this series.
	confidentialMeta = "linux-image-6.12-cloud-amd64"
)

// findPackages asks apt, once for all, which packages the image is made of and
// what their files are: each call of apt may read all of its lists.
func (b *builder) findPackages(ctx context.Context) error {
	roots := []string{runtime, ext4}
	newest := b.KernelPackage == "" && b.KernelDeb == ""
	if newest {
		roots = append(roots, b.kernelMetas()...)
	}
	depends, err := b.cache.aptDepends(ctx, roots...)
	if err != nil && !newest {
		return err
	}
	b.kernelName = b.KernelPackage
	if newest {
		if b.kernelName = newestKernel(depends, b.kernelMetas()); b.kernelName == "" {
			return errors.Join(fmt.Errorf("apt knows no package behind %s: run apt-get update on Debian, or pass --kernel-deb FILE", kernelMeta), err)
		}
	}
	b.packages = libraries(depends, []string{runtime, ext4})
	names := slices.Clone(b.packages)
	if b.KernelDeb == "" {
		names = append(names, b.kernelName)
	}
	if b.Debug {
		names = append(names, busybox)
	}
	if b.wantsDisk() || b.wants(FormatUKI) {
		names = append(names, bootStub)
	}
	b.cache.targets, err = b.cache.aptTargets(ctx, names...)
	return err
}

// kernelMetas returns the metapackages of the image's kernel, the preferred one first.
func (b *builder) kernelMetas() []string {
	if b.Confidential {
		return []string{confidentialMeta, kernelMeta}
	}
	return []string{kernelMeta}
}

// newestKernel returns the kernel of the first metapackage that apt knows.
func newestKernel(depends map[string][]string, metas []string) string {
	for _, meta := range metas {
		for _, name := range depends[meta] {
			if strings.HasPrefix(name, "linux-image-") {
				return name
			}
		}
	}
	return ""
}

// libraries adds to packages the libraries that they depend on, directly or not.
func libraries(depends map[string][]string, names []string) []string {
	for i := 0; i < len(names); i++ {
		for _, dep := range depends[names[i]] {
			if strings.HasPrefix(dep, "lib") && !slices.Contains(names, dep) {
				names = append(names, dep)
			}
		}
	}
	return names
}

// aptDepends lists the real packages that packages depend on directly, and those
// that these depend on.
func (c *packageCache) aptDepends(ctx context.Context, names ...string) (map[string][]string, error) {
	out, err := runTool(ctx, "", "apt", "apt-cache", append([]string{"-o", c.lists, "depends", "--important", "--recurse"}, names...)...)
	if err != nil {
		return nil, err
	}
	depends, of := map[string][]string{}, ""
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, " ") {
			of = strings.TrimSpace(line)
			continue
		}
		_, dep, ok := strings.Cut(line, "Depends: ")
		if dep = strings.TrimSpace(dep); ok && !strings.HasPrefix(dep, "<") {
			depends[of] = append(depends[of], dep)
		}
	}
	return depends, nil
}

// get downloads a package of the machine's Debian release and unpacks it. It does not
// download a package that is in the cache with the expected checksum.
func (c *packageCache) get(ctx context.Context, name string) (*debPackage, error) {
	want, ok := c.targets[name]
	if !ok {
		return nil, fmt.Errorf("package %s: apt-get knows no file of it (apt-get update may help)", name)
	}
	deb := filepath.Join(c.dir, want.file)
	if sum, err := wholefile.SHA256(deb); err != nil || (want.sha256 != "" && sum != want.sha256) {
		c.log("downloading %s", want.file)
		if err := c.download(ctx, name, want.file); err != nil {
			return nil, err
		}
	}
	return c.unpack(ctx, name, deb)
}

// aptFile is what apt would download.
type aptFile struct {
	file, sha256 string
}

// aptTargets asks apt without using the network. Results are by package.
func (c *packageCache) aptTargets(ctx context.Context, names ...string) (map[string]aptFile, error) {
	out, err := runTool(ctx, "", "apt", "apt-get", append([]string{"-o", c.lists, "download", "--print-uris", "-qq"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("packages %s: %w (apt-get update may help)", strings.Join(names, ", "), err)
	}
	targets := map[string]aptFile{}
	for line := range strings.Lines(out) {
		// 'URI' NAME_VERSION_ARCH.deb SIZE HASH:HEX
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, fmt.Errorf("packages %s: apt-get printed %q", strings.Join(names, ", "), line)
		}
		t := aptFile{file: f[1]}
		for _, w := range f[2:] {
			if hash, ok := strings.CutPrefix(w, "SHA256:"); ok {
				t.sha256 = hash
			}
		}
		name, _, _ := strings.Cut(t.file, "_")
		targets[name] = t
	}
	return targets, nil
}

func (c *packageCache) download(ctx context.Context, name, file string) error {
	tmp, err := os.MkdirTemp(c.dir, "download-")
	if err != nil {
		return fmt.Errorf("package cache: %w", err)
	}
	defer os.RemoveAll(tmp)
	args := []string{"-o", c.lists, "download", "-q", name}
	if os.Geteuid() == 0 {
		// apt's own user cannot write to a folder of root's.
		args = append([]string{"-o", "APT::Sandbox::User=root"}, args...)
	}
	if _, err := runTool(ctx, tmp, "apt", "apt-get", args...); err != nil {
		return fmt.Errorf("download %s: %w (a stale package list gives 404: run apt-get update)", name, err)
	}
	return os.Rename(filepath.Join(tmp, file), filepath.Join(c.dir, file))
}

// unpack extracts a .deb into the cache, once for each content.
func (c *packageCache) unpack(ctx context.Context, name, deb string) (*debPackage, error) {
	sum, err := wholefile.SHA256(deb)
	if err != nil {
		return nil, fmt.Errorf("package file: %w", err)
	}
	p := &debPackage{Name: name, File: filepath.Base(deb), SHA256: sum, root: filepath.Join(c.dir, "tree-"+sum[:16])}
	if _, err := os.Stat(p.root); err == nil {
		return p, nil
	}
	c.log("unpacking %s", p.File)
	tmp, err := os.MkdirTemp(c.dir, "unpack-")
	if err != nil {
		return nil, fmt.Errorf("package cache: %w", err)
	}
	defer os.RemoveAll(tmp)
	if _, err := runTool(ctx, "", "dpkg", "dpkg-deb", "-x", deb, tmp); err != nil {
		return nil, err
	}
	// Another build may have finished first; its tree is the same.
	if err := os.Rename(tmp, p.root); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("package cache: %w", err)
	}
	return p, nil
}

// runTool runs a program in dir and returns its standard output.
func runTool(ctx context.Context, dir, debPackage, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := output(cmd, debPackage)
	return string(out), err
}

// output runs a program, which is in a Debian package, and returns its standard output.
func output(cmd *exec.Cmd, debPackage string) ([]byte, error) {
	program := cmd.Args[0]
	if errors.Is(cmd.Err, exec.ErrNotFound) {
		return nil, missingTool(program, debPackage)
	}
	var stderr bytes.Buffer
	cmd.Stderr, cmd.Env = &stderr, append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

func missingTool(program, debPackage string) error {
	return fmt.Errorf("%s is not installed: run apt-get install %s", program, debPackage)
}
