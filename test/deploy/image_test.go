// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// TestImageHasUpstreamsNames: the DaemonSet of Confidential Containers' adaptor starts entrypoint.sh with its settings in the
// environment, and has no container for a relay.
func TestImageHasUpstreamsNames(t *testing.T) {
	programs, out := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-tags", "libvirt,grpcnotrace", "-o", programs+"/", "../../cmd/cloud-api-adaptor", "../../cmd/oci-image")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the image
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	images := exec.Command(filepath.Join(root, "deploy/images.sh"), "cloud-api-adaptor")
	images.Env = append(os.Environ(), "PROGRAMS="+programs, "OUT="+out)
	if text, err := images.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	bin := filepath.Join(unpack(t, filepath.Join(out, "cloud-api-adaptor")), "usr/local/bin")
	for _, c := range []struct {
		program, says string
		args          []string
		code          int
	}{
		{"entrypoint.sh", "cloud-api-adaptor: Unsupported cloud provider: nimbus", nil, 1},
		{"entrypoint.sh", "cloud-api-adaptor version", []string{"version"}, 0},
		{"agent-relay", "agent-relay dev", []string{"-version"}, 0},
		{"agent-relay", "unexpected argument", []string{"version"}, 2},
	} {
		cmd := exec.Command(filepath.Join(bin, c.program), c.args...)
		cmd.Env = []string{"CLOUD_PROVIDER=nimbus"}
		text, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(text), c.says) {
			t.Errorf("%s %v: %v, exit code %d:\n%s", c.program, c.args, err, code, text)
		}
	}
}

// unpack returns a folder with the programs of an image, and links beside them.
func unpack(t *testing.T, image string) string {
	t.Helper()
	index, err := layout.ImageIndexFromPath(image)
	if err != nil {
		t.Fatal(err)
	}
	all, err := partial.FindImages(index, func(v1.Descriptor) bool { return true })
	if err != nil || len(all) != 1 {
		t.Fatalf("%d images, %v", len(all), err)
	}
	layers, err := all[0].Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	dir := t.TempDir()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if path := filepath.Join(dir, h.Name); strings.HasPrefix(h.Name, "usr/local/bin/") {
			place(t, r, h, path)
		}
	}
}

func place(t *testing.T, r io.Reader, h *tar.Header, path string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	switch h.Typeflag {
	case tar.TypeSymlink:
		err = errors.Join(err, os.Symlink(h.Linkname, path))
	case tar.TypeReg:
		data, read := io.ReadAll(r)
		err = errors.Join(err, read, os.WriteFile(path, data, 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
}
