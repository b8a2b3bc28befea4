// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/internal/ociimage"
	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

// largeSize is how large the image's files are, in bytes.
const largeSize = 100 << 20

// largeImage compares the pull and start of a large image with what a user could do at best by hand in the same VM: copy the
// same layer and unpack it with tar.
func largeImage(t *testing.T, _ int) []promises.Figure {
	content := layerOf(t, programs(t))
	packed, err := content.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	large := onDemoImage(t, content)
	byHand := onDemoImage(t, layerOf(t, map[string][]byte{"layer.tar.gz": archive}))
	var pulled, unpacked []time.Duration
	for range 3 {
		pulled = append(pulled, pullAndStart(t, large))
		unpacked = append(unpacked, copyAndUnpack(t, byHand))
	}
	return []promises.Figure{{Promise: "large-image", Value: median(pulled).Seconds() / median(unpacked).Seconds(),
		How: fmt.Sprintf("%.2f s for %d MiB, compressed %d MiB", median(pulled).Seconds(), largeSize>>20, len(archive)>>20)}}
}

// programs returns files of bin/ until they have the size.
func programs(t *testing.T) map[string][]byte {
	files, left := map[string][]byte{}, largeSize
	all, _ := filepath.Glob(filepath.Join(stand.Root(), "bin", "*"))
	for _, path := range append(all, all...) {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // a folder
		}
		data = data[:min(len(data), left)]
		files[fmt.Sprintf("%s-%d", filepath.Base(path), len(files))] = data
		if left -= len(data); left == 0 {
			return files
		}
	}
	t.Fatal("bin/ has too few programs: make build-all")
	return nil
}

func layerOf(t *testing.T, files map[string][]byte) v1.Layer {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "large/" + name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := ociimage.Layer(out.Bytes(), tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// onDemoImage returns the folder of an image that has the layer over those of the demo image.
func onDemoImage(t *testing.T, layer v1.Layer) string {
	image, err := demoimage.Image(demoimage.Options{})
	if err == nil {
		image, err = mutate.AppendLayers(image, layer)
	}
	dir := t.TempDir()
	if err == nil {
		_, err = ociimage.Write(dir, "large", image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "oci:" + dir
}

func pullAndStart(t *testing.T, image string) time.Duration {
	root := stand.Dir(t)
	output(t, root, "run", "--quiet", "--detach", "--name", "web", "--memory", "1GiB", image, "--", "sleep", "infinity")
	defer output(t, root, "rm", "-f", "web")
	var took float64
	for _, step := range timeline(t, root) {
		if step.Name == "call-create-container" || step.Name == "call-start-container" {
			took += step.TookMilliseconds
		}
	}
	return time.Duration(took * float64(time.Millisecond))
}

func copyAndUnpack(t *testing.T, image string) time.Duration {
	const script = "now() { cut -d' ' -f1 /proc/uptime; }; mkdir /to; a=$(now); cp /large/layer.tar.gz /to/; tar -xzf /to/layer.tar.gz -C /to; echo $a $(now)"
	var began, ended float64
	text := output(t, stand.Dir(t), "run", "--quiet", "--memory", "1GiB", image, "--", "sh", "-c", script)
	if _, err := fmt.Sscan(strings.TrimSpace(string(text)), &began, &ended); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return time.Duration((ended - began) * float64(time.Second))
}
