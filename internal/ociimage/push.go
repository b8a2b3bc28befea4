// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

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
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
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
