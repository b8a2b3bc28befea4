// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/outrigger/outrigger/internal/wholefile"
)

// Annotations that name an image in a layout: its tag (image-spec,
// annotations.md), and the whole reference, under which containerd imports it.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// nameAnnotations are for a tag alone or for a whole reference.
func nameAnnotations(name string) map[string]string {
	colon := strings.LastIndexByte(name, ':')
	if colon < 0 || strings.Contains(name[colon:], "/") {
		return map[string]string{refName: name}
	}
	return map[string]string{refName: name[colon+1:], containerdName: name}
}

// Write makes dir a layout of one image, for one architecture or several, in
// place of the layout that was there. It returns the digest to pull.
func Write(dir, name string, images ...v1.Image) (v1.Hash, error) {
	if err := wholefile.Replaceable(dir, "oci-layout", "an OCI layout"); err != nil {
		return v1.Hash{}, err
	}
	fresh := filepath.Clean(dir) + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(fresh) // nothing is there once it has its name
	digest, err := write(fresh, name, images)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return v1.Hash{}, err
	}
	return digest, os.Rename(fresh, dir)
}

func write(dir, name string, images []v1.Image) (v1.Hash, error) {
	target, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	annotate := layout.WithAnnotations(nameAnnotations(name))
	if len(images) == 1 {
		platform, err := platformOf(images[0])
		if err != nil {
			return v1.Hash{}, err
		}
		if err := target.AppendImage(images[0], annotate, layout.WithPlatform(platform)); err != nil {
			return v1.Hash{}, err
		}
		return images[0].Digest()
	}
	index, err := Join(images)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := target.AppendIndex(index, annotate); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// Join makes one image of those for several architectures.
func Join(images []v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		platform, err := platformOf(image)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index, nil
}

func platformOf(image v1.Image) (v1.Platform, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return v1.Platform{}, err
	}
	return v1.Platform{OS: config.OS, Architecture: config.Architecture}, nil
}

// Push copies the one image of a layout to a registry, with the credentials of
// `docker login`, and returns its reference by digest.
func Push(ctx context.Context, dir, reference string) (string, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return "", err
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return "", err
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("%d images are in it, not one", len(manifest.Manifests))
	}
	one := manifest.Manifests[0]
	options := RegistryOptions(ctx)
	if one.MediaType.IsIndex() {
		index, err := all.ImageIndex(one.Digest)
		if err == nil {
			err = remote.WriteIndex(ref, index, options...)
		}
		return ref.Context().Name() + "@" + one.Digest.String(), err
	}
	image, err := all.Image(one.Digest)
	if err == nil {
		err = remote.Write(ref, image, options...)
	}
	return ref.Context().Name() + "@" + one.Digest.String(), err
}

// RegistryOptions are those for a registry with the credentials of `docker login`.
func RegistryOptions(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}
