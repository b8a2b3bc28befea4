// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirtext

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/outrigger/outrigger/test/stand"
)

// runImages unpacks each image and runs it with nothing around it: what it
// needs must be inside.
func runImages(t *testing.T, bin string) {
	t.Helper()
	t.Run("Daemon", func(t *testing.T) {
		if out := run(t, unpack(t, filepath.Join(bin, "image-caa")), "version"); !strings.Contains(out, "cloud-api-adaptor version") {
			t.Errorf("it printed %q", out)
		}
	})
	t.Run("Plugins", func(t *testing.T) {
		image := unpack(t, filepath.Join(bin, "image-plugins"))
		volume := filepath.Join(image.root, "cloud-providers")
		if err := os.Mkdir(volume, 0o777); err != nil {
			t.Fatal(err)
		}
		run(t, image)
		for _, plugin := range []string{"process/libvirt-ext", "so/libvirt-ext.so"} {
			stand.Run(t, "cmp", filepath.Join(bin, plugin), filepath.Join(volume, plugin))
			info, err := os.Stat(filepath.Dir(filepath.Join(volume, plugin)))
			if err != nil || info.Mode()&0o022 != 0 {
				t.Errorf("folder of %s: %v, %v", plugin, info, err)
			}
		}
	})
}

type unpacked struct {
	root       string
	entrypoint []string
}

func run(t *testing.T, image unpacked, args ...string) string {
	t.Helper()
	return stand.Run(t, "chroot", slices.Concat([]string{image.root}, image.entrypoint, args)...)
}

func unpack(t *testing.T, dir string) unpacked {
	t.Helper()
	image := open(t, dir)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root := stand.Dir(t)
	content := mutate.Extract(image)
	defer content.Close()
	tar := exec.CommandContext(t.Context(), "tar", "-x", "-C", root)
	tar.Stdin, tar.Stderr = content, os.Stderr
	if err := tar.Run(); err != nil {
		t.Fatal(err)
	}
	return unpacked{root, config.Config.Entrypoint}
}

// open returns the only image of a layout.
func open(t *testing.T, dir string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}
