// SPDX-License-Identifier: Apache-2.0

// Package ociimage packs files of this machine into container images, written
// as OCI layout folders. It needs no daemon, no registry and no privileges, and
// equal files give equal bytes.
package ociimage

import (
	"bytes"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Options are an image's configuration.
type Options struct {
	// Entrypoint is the program in the image, and its arguments.
	Entrypoint []string
	// User is UID:GID; empty is root.
	User string
	// Architecture is Go's name of it.
	Architecture string
}

// searchPath is where programs are found; Debian's QEMU is in /usr/bin.
const searchPath = "PATH=/usr/local/bin:/usr/bin:/bin"

// Pack makes an image of one layer.
func Pack(f Files, o Options) (v1.Image, error) {
	content, err := f.archive()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching) // its digest is asked for before its bytes
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.History = "linux", o.Architecture, v1.Time{Time: epoch}, nil
	config.Config = v1.Config{Entrypoint: o.Entrypoint, User: o.User, WorkingDir: "/", Env: []string{searchPath}}
	return mutate.ConfigFile(image, config)
}
