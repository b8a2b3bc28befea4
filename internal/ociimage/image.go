// SPDX-License-Identifier: Apache-2.0

// Package ociimage packs files of this machine into container images, written
// as OCI layout folders. It needs no daemon, no registry and no privileges, and
// equal files give equal bytes.
package ociimage

import (
	"bytes"
	"io"
	"time"

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
	// Links are symbolic links: absolute path in the image to target.
	Links map[string]string
}

// searchPath is where programs are found; Debian's QEMU is in /usr/bin.
const searchPath = "PATH=/usr/local/bin:/usr/bin:/bin"

// Pack makes an image of one layer.
func Pack(f Files, o Options) (v1.Image, error) {
	content, err := f.archive(o.Links)
	if err != nil {
		return nil, err
	}
	return OfArchive(content, o.Architecture, v1.Config{Entrypoint: o.Entrypoint, User: o.User, WorkingDir: "/", Env: []string{searchPath}})
}

// OfArchive makes an OCI image of one layer, which is a tar archive.
func OfArchive(content []byte, arch string, config v1.Config) (v1.Image, error) {
	layer, err := Layer(content, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching) // its digest is asked for before its bytes
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return Stack(base, arch, epoch, "", config, layer)
}

// Layer makes a layer of a tar archive.
func Layer(content []byte, options ...tarball.LayerOption) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, options...)
}

// Stack puts layers onto a base that has none. The image's history says who has made
// each, unless by is empty.
func Stack(base v1.Image, arch string, created time.Time, by string, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	var additions []mutate.Addendum
	for _, layer := range layers {
		additions = append(additions, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: by}})
	}
	image, err := mutate.Append(base, additions...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created, file.Config = "linux", arch, v1.Time{Time: created}, config
	if by == "" {
		file.History = nil
	}
	return mutate.ConfigFile(image, file)
}
