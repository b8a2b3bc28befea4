// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// sources makes the same two programs in a folder of its own, with other times
// and modes each time.
func sources(t *testing.T, mode fs.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"program-amd64", "program-arm64", "data/a", "data/b/c"} {
		path := filepath.Join(dir, file)
		perm := mode &^ 0o111
		if strings.HasPrefix(file, "program") {
			perm = mode
		}
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("of "+file), perm), os.Chmod(path, perm),
			os.Chtimes(path, time.Now(), time.Unix(int64(mode), 0)))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	c := &Command{Stdout: &out, Stderr: &errs}
	return c.Run(args), out.String(), errs.String()
}

func build(t *testing.T, dir, output string, flags ...string) {
	t.Helper()
	args := append([]string{"-output", output, "-tag", "localhost/x/program:v1", "-user", "65532:65532", "-entrypoint", "/bin/program -v", "-link", "/bin/other=program"}, flags...)
	args = append(args, "/bin/program="+dir+"/program-{arch}", "/usr/share/data="+dir+"/data")
	if code, stdout, stderr := run(args...); code != 0 || !strings.Contains(stdout, "localhost/x/program:v1 sha256:") {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
}

// contents returns path and text of all files below dir.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestEqualFilesGiveEqualBytes(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "other")
	build(t, sources(t, 0o755), one, "-arch", "amd64,arm64")
	build(t, sources(t, 0o700), other, "-arch", "amd64,arm64")
	if diff := cmp.Diff(contents(t, one), contents(t, other)); diff != "" {
		t.Error(diff)
	}
	build(t, sources(t, 0o755), other, "-arch", "amd64")
	if cmp.Equal(contents(t, one), contents(t, other)) {
		t.Error("images of one and of two architectures are equal, so this test cannot fail")
	}
}

func TestImageOfSeveralArchitectures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	build(t, sources(t, 0o755), dir, "-arch", "amd64, arm64")
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{refName: "v1", containerdName: "localhost/x/program:v1"}
	if diff := cmp.Diff(want, manifest.Manifests[0].Annotations); diff != "" || len(manifest.Manifests) != 1 {
		t.Errorf("%d images: %s", len(manifest.Manifests), diff)
	}
	inner, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		image, err := inner.Image(images.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image, arch)
	}
}

func checkImage(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != arch || config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/bin/program", "-v"}) {
		t.Errorf("%+v", config)
	}
	want := []string{"d bin", "d run", "d tmp", "d usr", "d usr/share", "d usr/share/data", "d usr/share/data/b", "d var",
		"l bin/other", "- bin/program", "- usr/share/data/a", "- usr/share/data/b/c", "l var/run"}
	if diff := cmp.Diff(want, list(t, image, "of program-"+arch)); diff != "" {
		t.Error(diff)
	}
}

// list returns kind and path of all files, and fails unless one has the text.
func list(t *testing.T, image v1.Image, text string) []string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	kinds := map[byte]string{tar.TypeDir: "d ", tar.TypeSymlink: "l ", tar.TypeReg: "- "}
	var all []string
	found := false
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(r)
		found = found || string(data) == text
		all = append(all, kinds[h.Typeflag]+strings.TrimSuffix(h.Name, "/"))
	}
	if !found {
		t.Errorf("no file has %q", text)
	}
	return all
}

func TestLibraries(t *testing.T) {
	if _, err := os.Stat("/bin/true"); err != nil {
		t.Skip("no /bin/true on this machine; run where there is a dynamic program of that name")
	}
	f, err := ParseFiles([]string{"/bin/true=/bin/true"})
	if err == nil {
		err = f.AddLibraries()
	}
	if err != nil {
		t.Fatal(err)
	}
	for inside := range f {
		if strings.Contains(inside, "/libc.so") {
			return
		}
	}
	t.Errorf("no C library: %v", f)
}

func TestRefusals(t *testing.T) {
	dir, full := sources(t, 0o755), t.TempDir()
	if err := os.WriteFile(full+"/precious", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"/a=b", 2, "-output"},
		{"-output x", 2, "-output"},
		{"-output OUT a=" + dir + "/data/a", 1, "not /PATH/IN/IMAGE=FILE"},
		{"-output OUT /a/../b=" + dir + "/data/a", 1, "not /PATH/IN/IMAGE=FILE"},
		{"-output OUT /a=/no/such", 1, "/no/such"},
		{"-output OUT -arch none -libraries /a=" + dir + "/data/a", 1, "-libraries"},
		{"-output " + full + " /a=" + dir + "/data/a", 1, "nor an OCI layout"},
		{"-nope", 2, "-nope"},
		{"-output OUT -link other=program /a=b", 2, "not /PATH=TARGET"},
		{"push OUT", 2, "push FOLDER REFERENCE"},
		{"push /no/such localhost/x", 1, "/no/such"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "OUT", filepath.Join(t.TempDir(), "out")))
		if code, _, stderr := run(args...); code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: code %d, %s", c.args, code, stderr)
		}
	}
	if _, err := os.Stat(full + "/precious"); err != nil {
		t.Error(err)
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	for _, arch := range []string{"amd64", "amd64,arm64"} {
		dir := filepath.Join(t.TempDir(), "layout")
		build(t, sources(t, 0o755), dir, "-arch", arch)
		ref := strings.TrimPrefix(server.URL, "http://") + "/x/program:v1"
		code, stdout, stderr := run("push", dir, ref)
		if code != 0 {
			t.Fatalf("code %d: %s", code, stderr)
		}
		parsed, err := name.ParseReference(strings.TrimSpace(stdout))
		if err != nil {
			t.Fatal(err)
		}
		image, err := remote.Image(parsed, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image, "amd64")
	}
}
