// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// testTree is a root file system with a file of each kind.
func testTree() *rootfs {
	tree := newRootfs()
	tree.file("init", 0o755, []byte("program"))
	tree.symlink("usr/local/bin/podvm-agent", "/init")
	tree.mkdirMode("tmp", 0o1777)
	tree.charDevice("dev/console", 0o600, 5, 1)
	tree.file("modules/virtio.ko", 0o644, []byte("module"))
	tree.file("modules.order", 0o644, nil)
	return tree
}

// filesOf returns what an archive of an image holds.
func filesOf(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(archive); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[head.Name] = head.FileInfo().Mode().String() + " " + head.Linkname + string(data)
	}
}

// TestContainerImage: what a container has no use for stays out, and the first
// process knows where it is.
func TestContainerImage(t *testing.T) {
	build := func() string {
		b := testBuilder(t)
		b.Formats, b.tree = []string{FormatDocker}, testTree()
		if err := b.writeContainer(t.Context()); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(b.Output, containerFile)
	}
	file := build()
	image, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/init", "--container"}, config.Config.Entrypoint); diff != "" || config.OS != "linux" || config.Architecture != "amd64" {
		t.Errorf("%s/%s: %s", config.OS, config.Architecture, diff)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil || !cmp.Equal(manifest[0].RepoTags, []string{containerName}) {
		t.Errorf("%+v, %v: want the name %s", manifest, err, containerName)
	}
	files := mutate.Extract(image)
	defer files.Close()
	want := map[string]string{
		"init": "-rwxr-xr-x program", "usr": "drwxr-xr-x ", "usr/local": "drwxr-xr-x ", "usr/local/bin": "drwxr-xr-x ", "usr/local/bin/podvm-agent": "Lrwxrwxrwx /init",
		"tmp": "dtrwxrwxrwx ", "dev": "drwxr-xr-x ",
	}
	if diff := cmp.Diff(want, filesOf(t, files)); diff != "" {
		t.Error(diff)
	}
	if read(t, file) != read(t, build()) {
		t.Error("two builds differ")
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
