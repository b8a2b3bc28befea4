// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// held is an image whose files are open.
type held struct {
	manifest    *v1.Manifest
	raw, config []byte
	files       map[v1.Hash]*os.File
}

func (h *held) RawManifest() ([]byte, error)   { return h.raw, nil }
func (h *held) RawConfigFile() ([]byte, error) { return h.config, nil }

func (h *held) MediaType() (types.MediaType, error) {
	return cmp.Or(h.manifest.MediaType, types.OCIManifestSchema1), nil
}

func (h *held) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	for _, d := range h.manifest.Layers {
		if d.Digest == digest {
			return heldLayer{d, h.files[digest]}, nil
		}
	}
	return partial.ConfigLayer(h)
}

type heldLayer struct {
	v1.Descriptor
	file *os.File
}

func (l heldLayer) Digest() (v1.Hash, error)            { return l.Descriptor.Digest, nil }
func (l heldLayer) Size() (int64, error)                { return l.Descriptor.Size, nil }
func (l heldLayer) MediaType() (types.MediaType, error) { return l.Descriptor.MediaType, nil }

// Compressed may be read by several at once.
func (l heldLayer) Compressed() (io.ReadCloser, error) {
	return section{io.NewSectionReader(l.file, 0, l.Descriptor.Size)}, nil
}

// section leaves its file open.
type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

func hold(s Store, d v1.Descriptor) (v1.Image, error) {
	h := &held{files: map[v1.Hash]*os.File{}}
	var err error
	if h.manifest, h.raw, err = s.manifest(d.Digest); err != nil {
		return nil, err
	}
	if h.config, err = s.read(h.manifest.Config.Digest); err != nil {
		return nil, err
	}
	for _, layer := range h.manifest.Layers {
		if h.files[layer.Digest], err = os.Open(s.blob(layer.Digest)); err != nil {
			return nil, err
		}
	}
	return partial.CompressedToImage(h)
}
