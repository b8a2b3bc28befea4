// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/filetree"
)

var testDate = time.Unix(1700000000, 0).UTC()

// exampleTree has each kind of entry, one of them in a file with mode and times
// of its own.
func exampleTree(t *testing.T, mode os.FileMode) filetree.Tree {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "program")
	err := errors.Join(os.WriteFile(source, []byte("#!/bin/sh\necho hello\n"), mode), os.Chmod(source, mode), os.Chtimes(source, time.Now(), time.Unix(int64(mode), 0)))
	if err != nil {
		t.Fatal(err)
	}
	tr := filetree.Tree{}
	tr.Program("usr/lib/example/program", source)
	tr.File("usr/share/doc/example/README.md", []byte("odd"))
	tr.Link("usr/bin/example", "../lib/example/program")
	return tr
}

func examplePackage(t *testing.T, mode os.FileMode) []byte {
	t.Helper()
	p := debPackage{Tree: exampleTree(t, mode), Date: testDate, Fields: []field{
		{"Package", "example"}, {"Version", "1.0~rc.1"}, {"Architecture", "amd64"}, {"Maintainer", "Example authors"},
		{"Description", "an example\n of two lines"},
	}}
	var out bytes.Buffer
	if err := p.write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// dpkg-deb returns what Debian's own program says of a package.
func dpkgDeb(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("needs dpkg-deb; run on Debian: go test ./internal/dist")
	}
	cmd := exec.Command("dpkg-deb", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("dpkg-deb %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestPackageAsDpkgReadsIt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "example.deb")
	if err := os.WriteFile(file, examplePackage(t, 0o700), 0o644); err != nil {
		t.Fatal(err)
	}
	want := "Package: example\nVersion: 1.0~rc.1\nArchitecture: amd64\nMaintainer: Example authors\nDescription: an example\n of two lines\nInstalled-Size: 10\n"
	if d := cmp.Diff(want, dpkgDeb(t, "--field", file)); d != "" {
		t.Errorf("control (-want +got):\n%s", d)
	}
	list := dpkgDeb(t, "--contents", file)
	for _, line := range []string{
		"drwxr-xr-x root/root         0 2023-11-14 22:13 ./usr/share/doc/",
		"-rwxr-xr-x root/root        21 2023-11-14 22:13 ./usr/lib/example/program",
		"lrwxrwxrwx root/root         0 2023-11-14 22:13 ./usr/bin/example -> ../lib/example/program",
	} {
		if !strings.Contains(list, line+"\n") {
			t.Errorf("there is no %q in\n%s", line, list)
		}
	}
	root := t.TempDir()
	dpkgDeb(t, "--extract", file, root)
	if out, err := exec.Command(filepath.Join(root, "usr/bin/example")).CombinedOutput(); err != nil || string(out) != "hello\n" {
		t.Errorf("the program says %q, %v", out, err)
	}
	dpkgDeb(t, "--control", file, filepath.Join(root, "DEBIAN"))
	sums := exec.Command("md5sum", "--check", "--strict", "DEBIAN/md5sums")
	sums.Dir = root
	if out, err := sums.CombinedOutput(); err != nil || strings.Count(string(out), "OK") != 2 {
		t.Errorf("md5sums: %v\n%s", err, out)
	}
}

// Where a build happens, its umask and its time do not show.
func TestPackageIsReproducible(t *testing.T) {
	t.Parallel()
	if !bytes.Equal(examplePackage(t, 0o700), examplePackage(t, 0o755)) {
		t.Error("the same content gives other bytes")
	}
}

func TestArchive(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "below", "example.tar.gz")
	if err := writeTarGz(exampleTree(t, 0o711).Under("top"), file, testDate); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if zip.Name != "" || !zip.ModTime.IsZero() {
		t.Errorf("the header has the name %q and the time %s", zip.Name, zip.ModTime)
	}
	var names []string
	for files := tar.NewReader(zip); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(testDate) {
			t.Errorf("%s is of %d:%d and %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		names = append(names, h.Name)
	}
	want := []string{
		"top/", "top/usr/", "top/usr/bin/", "top/usr/lib/", "top/usr/lib/example/", "top/usr/share/", "top/usr/share/doc/", "top/usr/share/doc/example/",
		"top/usr/bin/example", "top/usr/lib/example/program", "top/usr/share/doc/example/README.md",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("entries (-want +got):\n%s", d)
	}
}
