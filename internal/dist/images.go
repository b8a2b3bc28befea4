// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/outrigger/outrigger/internal/filetree"
)

// ofOneArchitecture returns the images that hold programs of this machine.
func ofOneArchitecture() []string { return []string{"outrigger-csi", "provider-qemu"} }

// images returns those of deploy/images.sh for all architectures.
func images() []string {
	return []string{
		"agent-relay", "capi-manager", "ccm-operator", "cloud-api-adaptor", "cloud-controller-manager",
		"cluster-loadbalancer", "node-installer", "peerpod-ctrl", "peerpods-webhook",
	}
}

// names returns the images that this distribution has.
func (b *builder) images() []string {
	if !slices.Contains(b.Architectures, "amd64") {
		return images()
	}
	all := append(images(), ofOneArchitecture()...)
	slices.Sort(all)
	return all
}

func (b *builder) layout(image string) string { return filepath.Join(b.work, "images", image) }

func (b *builder) imageName(image string) string {
	return b.Prefix + "/" + image + ":" + b.source.version
}

// makeImages makes an archive of each image's OCI layout.
func (b *builder) makeImages(ctx context.Context) error {
	if err := b.buildImages(ctx, strings.Join(b.Architectures, ","), images()...); err != nil {
		return err
	}
	if slices.Contains(b.Architectures, "amd64") {
		if err := b.buildImages(ctx, "amd64", ofOneArchitecture()...); err != nil {
			return err
		}
	}
	var digests bytes.Buffer
	for _, image := range b.images() {
		line, err := b.packImage(image)
		if err != nil {
			return fmt.Errorf("%s: %w", image, err)
		}
		digests.WriteString(line)
	}
	return writeBytes(filepath.Join(b.fresh, "images", "digests.txt"), digests.Bytes())
}

func (b *builder) buildImages(ctx context.Context, arch string, images ...string) error {
	env := []string{
		"OUT=" + filepath.Dir(b.layout("any")), "ARCH=" + arch, "PREFIX=" + b.Prefix, "TAG=" + b.source.version,
		"VERSION=" + b.source.version, "COMMIT=" + b.source.shortCommit(), "OUTRIGGER_PODVM_DIR=" + b.podvm(), "TMPDIR=" + b.work,
	}
	_, err := b.run(ctx, env, "deploy/images.sh", images...)
	return err
}

// packImage makes the archive of a layout and returns the image's line in the
// list of digests.
func (b *builder) packImage(image string) (string, error) {
	t := filetree.Tree{}
	if err := t.Copy("", b.layout(image)); err != nil {
		return "", err
	}
	err := writeFile(filepath.Join(b.fresh, "images", image+".oci.tar"), func(w io.Writer) error {
		return t.WriteTar(w, "", b.source.date)
	})
	if err != nil {
		return "", err
	}
	one, variants, err := b.variants(image)
	if err != nil {
		return "", err
	}
	var platforms []string
	for _, variant := range variants {
		config, err := variant.ConfigFile()
		if err != nil {
			return "", err
		}
		platforms = append(platforms, config.Platform().String())
	}
	return fmt.Sprintf("%s  %s  %s\n", one.Digest, b.imageName(image), strings.Join(platforms, ",")), nil
}

// variants returns what is pulled, an image or the index of those for several
// architectures, and the images, one for each.
func (b *builder) variants(image string) (one v1.Descriptor, all []v1.Image, err error) {
	index, err := layout.ImageIndexFromPath(b.layout(image))
	if err != nil {
		return one, nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return one, nil, err
	}
	if len(manifest.Manifests) != 1 {
		return one, nil, fmt.Errorf("%d images are in %s, not one", len(manifest.Manifests), b.layout(image))
	}
	if one = manifest.Manifests[0]; one.MediaType.IsIndex() {
		if index, err = index.ImageIndex(one.Digest); err != nil {
			return one, nil, err
		}
	}
	all, err = partial.FindImages(index, func(v1.Descriptor) bool { return true })
	return one, all, err
}
