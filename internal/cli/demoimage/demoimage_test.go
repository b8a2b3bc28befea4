// SPDX-License-Identifier: Apache-2.0

package demoimage_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
)

// busybox returns Debian's static busybox, or skips.
func busybox(t *testing.T) string {
	const path = "/bin/busybox"
	if _, err := os.Stat(path); err != nil {
		t.Skip("needs /bin/busybox; to run it: apt-get install busybox-static, then go test ./internal/cli/demoimage")
	}
	return path
}

func TestTwoBuildsAreEqual(t *testing.T) {
	busybox(t)
	var indexes []string
	for range 2 {
		dir := filepath.Join(t.TempDir(), "image")
		if err := demoimage.Build(dir, demoimage.Options{}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		indexes = append(indexes, string(data))
	}
	if indexes[0] != indexes[1] {
		t.Errorf("the digests differ:\n%s\n%s", indexes[0], indexes[1])
	}
}

func TestContent(t *testing.T) {
	img, err := demoimage.Image(demoimage.Options{Busybox: busybox(t), Extra: map[string]string{"tool": "/bin/busybox"}})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	rc, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	found := map[string]*tar.Header{}
	for r := tar.NewReader(rc); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = h
	}
	for name, typ := range map[string]byte{
		"bin/busybox": tar.TypeReg, "bin/sh": tar.TypeSymlink, "bin/tool": tar.TypeReg, "etc/passwd": tar.TypeReg, "tmp/": tar.TypeDir,
	} {
		if found[name] == nil || found[name].Typeflag != typ {
			t.Errorf("%s: %+v", name, found[name])
		}
	}
	if found["bin/wget"] != nil {
		t.Error("wget crashes in a static busybox and must not be there")
	}
}

func TestBadInput(t *testing.T) {
	_, err := demoimage.Image(demoimage.Options{Busybox: filepath.Join(t.TempDir(), "none")})
	if err == nil || !strings.Contains(err.Error(), "apt-get install busybox-static") {
		t.Errorf("error %v does not say what to install", err)
	}
	busybox(t)
	dir := t.TempDir()
	keep := filepath.Join(dir, "precious")
	os.WriteFile(keep, nil, 0o600)
	if err := demoimage.Build(dir, demoimage.Options{}); err == nil {
		t.Error("a folder that is not an OCI layout was replaced")
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}
