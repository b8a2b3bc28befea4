// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// refName is the annotation for tags in an OCI layout (image-spec, annotations.md).
const refName = "org.opencontainers.image.ref.name"

// openLayout finds one image in an OCI layout folder.
func openLayout(text string, platform v1.Platform) (v1.Image, error) {
	dir, want, err := splitPath(text, ":@")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err != nil {
		return nil, fmt.Errorf("%s is not an OCI layout: %w", dir, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI layout: %w", dir, err)
	}
	if _, err := index.IndexManifest(); err != nil {
		return nil, fmt.Errorf("%s is not an OCI layout: index.json: %w", dir, err)
	}
	return pick(index, want, platform)
}

// pick finds the one image with the tag or digest (empty means any) for the
// platform.
func pick(index v1.ImageIndex, want string, platform v1.Platform) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(slices.Clone(manifest.Manifests), func(d v1.Descriptor) bool {
		return want != "" && d.Annotations[refName] != want && d.Digest.String() != want && d.Digest.Hex != want
	})
	if len(entries) == 0 {
		return nil, fmt.Errorf("no image %q in it; it has: %s", want, describe(manifest.Manifests))
	}
	fitting := slices.DeleteFunc(slices.Clone(entries), func(d v1.Descriptor) bool { return !isImageFor(d, platform) })
	if len(fitting) == 0 {
		return nil, fmt.Errorf("nothing for %s in it; it has: %s", platform, describe(entries))
	}
	fitting = forOldest(fitting)
	if len(fitting) > 1 {
		return nil, fmt.Errorf("several images in it, name one by tag or digest: %s", describe(fitting))
	}
	return open(index, fitting[0], platform)
}

// forOldest leaves the variant of a platform that every processor has: amd64, not
// amd64/v4.
func forOldest(list []v1.Descriptor) []v1.Descriptor {
	variant := func(d v1.Descriptor) string {
		if d.Platform == nil {
			return ""
		}
		return d.Platform.Variant
	}
	least := variant(slices.MinFunc(list, func(a, b v1.Descriptor) int { return strings.Compare(variant(a), variant(b)) }))
	return slices.DeleteFunc(list, func(d v1.Descriptor) bool { return variant(d) != least })
}

func open(index v1.ImageIndex, d v1.Descriptor, platform v1.Platform) (v1.Image, error) {
	if !d.MediaType.IsIndex() {
		return index.Image(d.Digest)
	}
	inner, err := index.ImageIndex(d.Digest)
	if err != nil {
		return nil, err
	}
	return pick(inner, "", platform)
}

// isImageFor leaves out other platforms, and attestations, which are not images.
func isImageFor(d v1.Descriptor, want v1.Platform) bool {
	if !d.MediaType.IsIndex() && !d.MediaType.IsImage() {
		return false
	}
	return d.Platform == nil || d.Platform.Satisfies(want)
}

func describe(list []v1.Descriptor) string {
	var names []string
	for _, d := range list {
		text := cmp.Or(d.Annotations[refName], d.Digest.String())
		if d.Platform != nil {
			text += " (" + d.Platform.String() + ")"
		}
		names = append(names, text)
	}
	return cmp.Or(strings.Join(names, ", "), "nothing")
}
