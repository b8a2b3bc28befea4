// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"crypto/sha256"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"
)

// registryOf serves the test's image until stop is called, and returns its name there.
func (c *cli) registryOf(t *testing.T) (ref string, stop func()) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ref = strings.TrimPrefix(server.URL, "http://") + "/demo:v1"
	index, err := layout.ImageIndexFromPath(strings.TrimPrefix(c.image, "oci:"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(ref)
	if err == nil {
		err = remote.Write(tag, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref, server.Close
}

// TestPulledImageNeedsNoRegistry: once it was pulled, a VM runs an image whose registry is gone. On a disk that is full
// there is no image, and nothing that is in its way when there is room.
func TestPulledImageNeedsNoRegistry(t *testing.T) {
	c := newCLI(t)
	ref, stop := c.registryOf(t)
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(small, unix.MNT_DETACH) })
	if _, stderr, code := c.run(t, "", "pull", "--image-cache", small, ref); code != 125 || !strings.Contains(stderr, "make room on that disk") {
		t.Errorf("a full disk: exit code %d\n%s", code, stderr)
	}
	left, _ := filepath.Glob(small + "/blobs/sha256/*")
	if left = slices.DeleteFunc(left, func(file string) bool { return len(filepath.Base(file)) == 2*sha256.Size }); len(left) > 0 {
		t.Errorf("the full disk has parts of blobs: %v", left)
	}
	if stdout, stderr, code := c.run(t, "", "images", "-q", "--image-cache", small); code != 0 || stdout != "" {
		t.Errorf("images of the full disk: exit code %d, %q\n%s", code, stdout, stderr)
	}
	if _, stderr, code := c.run(t, "", "pull", ref); code != 0 {
		t.Fatal(stderr)
	}
	stop()
	stdout, stderr, code := c.run(t, "", "run", ref, "--", "echo", "from this host")
	if code != 0 || stdout != "from this host\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	c.wantNothing(t)
}
