// SPDX-License-Identifier: Apache-2.0

package stand

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Gateway is the node as VMs of the qemu provider see it by default.
const Gateway = "192.168.127.1"

// Registry serves images to guests. containerd gets them as an archive, since on the node
// only their configuration matters.
type Registry struct {
	// Ref is the name, as containerd and the guest know it, of an image with busybox, and
	// WithNettool that of one with test/nettool besides, which takes a guest without
	// KVM twice as long to pull.
	Ref, WithNettool string
	images           map[string]v1.Image // by name
	dir              string
}

// StartRegistry serves on all addresses of the test's network namespace.
func StartRegistry(t testing.TB) *Registry {
	t.Helper()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	at := Gateway + ":" + port
	r := &Registry{Ref: at + "/busybox:1", WithNettool: at + "/nettool:1", dir: t.TempDir()}
	r.images = map[string]v1.Image{
		r.Ref: busyboxImage(t, nil), r.WithNettool: busyboxImage(t, map[string]string{"nettool": Build(t, "./test/nettool")}),
	}
	for ref, image := range r.images {
		local, err := name.NewTag(strings.Replace(ref, Gateway, "127.0.0.1", 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(local, image); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Archive returns a file that holds the images under the names that guests pull, and the
// first as sandbox image.
func (r *Registry) Archive(t testing.TB) string {
	t.Helper()
	named := maps.Clone(r.images)
	named["localhost/pause:1"] = r.images[r.Ref]
	images := map[name.Tag]v1.Image{}
	for ref, image := range named {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		images[tag] = image
	}
	path := filepath.Join(r.dir, "images.tar")
	if err := tarball.MultiWriteToFile(path, images); err != nil {
		t.Fatal(err)
	}
	return path
}

// busyboxImage has programs besides, by name in /bin.
func busyboxImage(t testing.TB, programs map[string]string) v1.Image {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("%v; run: apt-get install busybox-static", err)
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(h *tar.Header, content string) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, content)
	}
	for _, d := range []string{"bin", "etc", "proc", "sys", "dev", "root", "var", "run"} {
		add(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	}
	add(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, "")
	add(&tar.Header{Name: "bin/busybox", Mode: 0o755}, string(program))
	for a := range strings.FieldsSeq(string(applets)) {
		if a != "busybox" {
			add(&tar.Header{Name: "bin/" + a, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, "")
		}
	}
	for name, path := range programs {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		add(&tar.Header{Name: "bin/" + name, Mode: 0o755}, string(content))
	}
	add(&tar.Header{Name: "etc/passwd", Mode: 0o644}, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
	add(&tar.Header{Name: "etc/group", Mode: 0o644}, "root:x:0:\nnogroup:x:65534:\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil }, tarball.WithCompressedCaching)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = "amd64", "linux"
	config.Config = v1.Config{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/sleep", "infinity"}, WorkingDir: "/"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}
