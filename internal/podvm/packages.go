// SPDX-License-Identifier: Apache-2.0

package podvm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packageCache holds downloaded .deb files and their unpacked trees.
type packageCache struct {
	dir string
	log func(format string, args ...any)
}

// debPackage is one unpacked package.
type debPackage struct {
	Name string `json:"name"`
	// File is the .deb's base name, which holds the version.
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	root   string
}

// Copyright returns the file that says whose the package is and under which
// licence.
func (p *debPackage) Copyright() ([]byte, error) {
	return os.ReadFile(filepath.Join(p.root, "usr/share/doc", p.Name, "copyright"))
}

// newestKernelPackage is the one that Debian's metapackage depends on now.
func newestKernelPackage(ctx context.Context) (string, error) {
	const meta, prefix = "linux-image-cloud-amd64", "linux-image-"
	names, err := aptDepends(ctx, meta)
	for _, n := range names {
		if strings.HasPrefix(n, prefix) {
			return n, nil
		}
	}
	return "", errors.Join(fmt.Errorf("apt knows no package behind %s: run apt-get update on Debian, or pass --kernel-deb FILE", meta), err)
}

// aptDepends lists the real packages that a package depends on directly.
func aptDepends(ctx context.Context, name string) ([]string, error) {
	out, err := runTool(ctx, "", "apt", "apt-cache", "depends", "--important", name)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		_, dep, ok := strings.Cut(line, "Depends: ")
		if dep = strings.TrimSpace(dep); ok && !strings.HasPrefix(dep, "<") {
			names = append(names, dep)
		}
	}
	return names, nil
}

// withDependencies gets a package and what it depends on directly.
func (c *packageCache) withDependencies(ctx context.Context, name string) ([]*debPackage, error) {
	deps, err := aptDepends(ctx, name)
	if err != nil {
		return nil, err
	}
	var pkgs []*debPackage
	for _, n := range append([]string{name}, deps...) {
		p, err := c.get(ctx, n)
		if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// get downloads a package of the machine's Debian release and unpacks it.
// What is in the cache with the checksum apt expects is not fetched again.
func (c *packageCache) get(ctx context.Context, name string) (*debPackage, error) {
	want, err := aptTarget(ctx, name)
	if err != nil {
		return nil, err
	}
	deb := filepath.Join(c.dir, want.file)
	if sum, err := fileSHA256(deb); err != nil || (want.sha256 != "" && sum != want.sha256) {
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

// aptTarget asks apt without using the network.
func aptTarget(ctx context.Context, name string) (aptFile, error) {
	out, err := runTool(ctx, "", "apt", "apt-get", "download", "--print-uris", "-qq", name)
	if err != nil {
		return aptFile{}, fmt.Errorf("package %s: %w (apt-get update may help)", name, err)
	}
	// 'URI' FILE SIZE HASH:HEX
	f := strings.Fields(out)
	if len(f) < 3 {
		return aptFile{}, fmt.Errorf("package %s: apt-get printed %q", name, out)
	}
	t := aptFile{file: f[1]}
	for _, w := range f[2:] {
		if hash, ok := strings.CutPrefix(w, "SHA256:"); ok {
			t.sha256 = hash
		}
	}
	return t, nil
}

func (c *packageCache) download(ctx context.Context, name, file string) error {
	tmp, err := os.MkdirTemp(c.dir, "download-")
	if err != nil {
		return fmt.Errorf("package cache: %w", err)
	}
	defer os.RemoveAll(tmp)
	args := []string{"download", "-q", name}
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
	sum, err := fileSHA256(deb)
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
	// Another build may have been faster; its tree is the same.
	if err := os.Rename(tmp, p.root); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("package cache: %w", err)
	}
	return p, nil
}

// runTool runs a program in dir and returns its standard output.
func runTool(ctx context.Context, dir, debPackage, program string, args ...string) (string, error) {
	if _, err := exec.LookPath(program); err != nil {
		return "", missingTool(program, debPackage)
	}
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out.String(), nil
}

func fileSHA256(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
