// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// tree writes a file system as an archive: what is added first stays.
type tree struct {
	w     *tar.Writer
	mtime time.Time
	known map[string]bool
	// certificates are those that were in packages.
	certificates bytes.Buffer
}

// merged are the folders that Debian has below /usr, where packages still say
// the old names.
var merged = []string{"bin", "lib", "lib32", "lib64", "libx32", "sbin"}

// useless matches files that no program reads.
var useless = []string{
	"usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/lintian/", "usr/share/locale/", "usr/share/bug/",
	"usr/share/bash-completion/", "usr/share/zsh/", "usr/share/perl5/", "usr/lib/systemd/", "usr/lib/udev/hwdb.d/", "usr/share/doc-base/",
	"usr/share/pixmaps/", "usr/share/menu/", "usr/share/gcc/", "usr/share/gdb/",
}

func newTree(out io.Writer, mtime time.Time) *tree {
	return &tree{w: tar.NewWriter(out), mtime: mtime, known: map[string]bool{}}
}

// system begins the tree of a Debian system.
func (t *tree) system() error {
	errs := []error{t.folder("usr", 0o755), t.folder("tmp", 0o1777), t.folder("proc", 0o555), t.folder("sys", 0o555), t.folder("dev", 0o755), t.folder("run", 0o755),
		t.folder("root", 0o700), t.folder("var", 0o755), t.link("var/run", "/run"), t.link("var/lock", "/run/lock"), t.folder("var/tmp", 0o1777)}
	for _, name := range merged {
		errs = append(errs, t.folder("usr/"+name, 0o755), t.link(name, "usr/"+name))
	}
	return errors.Join(errs...)
}

func (t *tree) folder(name string, mode int64) error {
	return t.put(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (t *tree) link(name, target string) error {
	return t.put(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (t *tree) file(name string, mode int64, content []byte) error {
	return t.put(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, bytes.NewReader(content))
}

func (t *tree) copyIn(name, source string, mode int64) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return t.put(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: info.Size()}, f)
}

// put adds an entry, and the folders that it is in.
func (t *tree) put(h *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if t.known[name] {
		return nil
	}
	if dir := path.Dir(name); dir != "." && !t.known[dir] {
		if err := t.folder(dir, 0o755); err != nil {
			return err
		}
	}
	t.known[name] = true
	if h.ModTime.IsZero() {
		h.ModTime = t.mtime
	}
	h.Format = tar.FormatPAX
	if err := t.w.WriteHeader(h); err != nil {
		return err
	}
	if content != nil {
		if _, err := io.Copy(t.w, content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// installPath returns the path at which a file of a package is installed; empty if it
// is left out.
func installPath(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	top, rest, _ := strings.Cut(name, "/")
	for _, dir := range merged {
		if top == dir {
			if rest == "" {
				return ""
			}
			name = "usr/" + name
		}
	}
	for _, prefix := range useless {
		if strings.HasPrefix(name+"/", prefix) {
			return ""
		}
	}
	return name
}

// unpack adds a package's files. Its scripts are not run.
func (t *tree) unpack(ctx context.Context, deb string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: node images are built on Debian", err)
	}
	adding := t.addAll(tar.NewReader(out))
	if adding == nil {
		_, adding = io.Copy(io.Discard, out)
	} else {
		cmd.Process.Kill()
	}
	if err := cmd.Wait(); err != nil && adding == nil {
		adding = fmt.Errorf("%w: %s", err, tail(problems.Bytes()))
	}
	if adding != nil {
		return fmt.Errorf("%s: %w", filepath.Base(deb), adding)
	}
	return nil
}

func (t *tree) addAll(r *tar.Reader) error {
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := installPath(h.Name)
		if name == "" {
			continue
		}
		if err := t.add(name, h, r); err != nil {
			return err
		}
	}
}

// certificateDir has the files of package ca-certificates. Programs read one
// file with all of them, which its script would write.
const certificateDir = "usr/share/ca-certificates/"

func (t *tree) add(name string, h *tar.Header, content io.Reader) error {
	fresh := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid, Size: h.Size, Linkname: h.Linkname, ModTime: h.ModTime}
	switch {
	case h.Typeflag == tar.TypeDir:
		fresh.Name += "/"
	case h.Typeflag == tar.TypeLink:
		if fresh.Linkname = installPath(h.Linkname); fresh.Linkname == "" {
			return nil
		}
	case h.Typeflag == tar.TypeReg && strings.HasPrefix(name, certificateDir):
		content = io.TeeReader(content, &t.certificates)
	}
	return t.put(fresh, content)
}

// finish adds what the scripts of packages would have made.
func (t *tree) finish() error {
	var errs []error
	if t.certificates.Len() > 0 {
		errs = append(errs, t.file("etc/ssl/certs/ca-certificates.crt", 0o644, t.certificates.Bytes()))
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if t.known["usr/sbin/xtables-nft-multi"] {
			errs = append(errs, t.link("usr/sbin/"+name, "xtables-nft-multi"))
		}
	}
	return errors.Join(append(errs, t.w.Close())...)
}
