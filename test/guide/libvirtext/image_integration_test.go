// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirtext

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/outrigger/outrigger/test/stand"
)

// runImage unpacks the daemon's image and runs it with nothing around it: the
// libraries that it is linked with must be inside.
func runImage(t *testing.T, dir string) {
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
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root := stand.Dir(t)
	content := mutate.Extract(image)
	defer content.Close()
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", root)
	unpack.Stdin, unpack.Stderr = content, os.Stderr
	if err := unpack.Run(); err != nil {
		t.Fatal(err)
	}
	args := append([]string{root}, config.Config.Entrypoint...)
	if out := stand.Run(t, "chroot", append(args, "version")...); !strings.Contains(out, "cloud-api-adaptor version") {
		t.Errorf("it printed %q", out)
	}
}
