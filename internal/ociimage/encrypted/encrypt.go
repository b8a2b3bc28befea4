// SPDX-License-Identifier: Apache-2.0

package encrypted

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/containers/ocicrypt/blockcipher"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
)

// Key is a key-encryption key.
type Key struct {
	// ID is its URI at the broker, such as kbs:///default/key/1.
	ID string
	// Secret has [KeySize] bytes.
	Secret []byte
}

// Encrypt returns a copy of an image with all layers encrypted, an OCI image with the same config. Its
// layers are files in folder dir until it is written.
func Encrypt(plain v1.Image, key Key, dir string) (v1.Image, error) {
	manifest, err := plain.Manifest()
	if err != nil {
		return nil, err
	}
	e := &encryptedImage{plain: plain, manifest: manifest.DeepCopy(), files: map[v1.Hash]string{}}
	e.manifest.MediaType, e.manifest.Config.MediaType = types.OCIManifestSchema1, types.OCIConfigJSON
	for i := range e.manifest.Layers {
		if err := e.encrypt(&e.manifest.Layers[i], key, dir); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return partial.CompressedToImage(e)
}

// encryptedImage has its layers in files.
type encryptedImage struct {
	plain    v1.Image
	manifest *v1.Manifest
	files    map[v1.Hash]string
}

func (e *encryptedImage) MediaType() (types.MediaType, error) { return e.manifest.MediaType, nil }
func (e *encryptedImage) RawManifest() ([]byte, error)        { return json.Marshal(e.manifest) }
func (e *encryptedImage) RawConfigFile() ([]byte, error)      { return e.plain.RawConfigFile() }
func (e *encryptedImage) Manifest() (*v1.Manifest, error)     { return e.manifest, nil }
func (e *encryptedImage) ConfigFile() (*v1.ConfigFile, error) { return e.plain.ConfigFile() }

// LayerByDigest implements partial.CompressedImageCore.
func (e *encryptedImage) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, desc := range e.manifest.Layers {
		if desc.Digest == h {
			return fileLayer{desc, e.files[h]}, nil
		}
	}
	return nil, fmt.Errorf("no layer %s", h)
}

type fileLayer struct {
	v1.Descriptor
	path string
}

func (f fileLayer) Digest() (v1.Hash, error)            { return f.Descriptor.Digest, nil }
func (f fileLayer) Size() (int64, error)                { return f.Descriptor.Size, nil }
func (f fileLayer) MediaType() (types.MediaType, error) { return f.Descriptor.MediaType, nil }
func (f fileLayer) Compressed() (io.ReadCloser, error)  { return os.Open(f.path) }

// mediaTypes are those of encrypted layers, by the plain ones'.
var mediaTypes = map[types.MediaType]types.MediaType{
	types.OCILayer:                types.OCILayer + suffix,
	types.OCILayerZStd:            types.OCILayerZStd + suffix,
	types.OCIUncompressedLayer:    types.OCIUncompressedLayer + suffix,
	types.DockerLayer:             types.OCILayer + suffix,
	types.DockerUncompressedLayer: types.OCIUncompressedLayer + suffix,
}

func (e *encryptedImage) encrypt(desc *v1.Descriptor, key Key, dir string) error {
	mediaType, known := mediaTypes[desc.MediaType]
	if !known {
		return fmt.Errorf("type %q cannot be encrypted", desc.MediaType)
	}
	was := desc.Digest
	layer, err := e.plain.LayerByDigest(was)
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	cipher, err := blockcipher.NewLayerBlockCipherHandler()
	if err != nil {
		return err
	}
	ciphertext, finish, err := cipher.Encrypt(content, blockcipher.AES256CTR)
	if err != nil {
		return err
	}
	path, err := writeFile(dir, ciphertext, desc)
	if err != nil {
		return err
	}
	options, err := finish()
	if err != nil {
		return err
	}
	options.Private.Digest = digest.Digest(was.String())
	e.files[desc.Digest], desc.MediaType, desc.URLs = path, mediaType, nil
	desc.Annotations, err = annotate(desc.Annotations, options, key)
	return err
}

// writeFile writes a layer to a file, and its digest to desc. Encryption does not change its size.
func writeFile(dir string, content io.Reader, desc *v1.Descriptor) (string, error) {
	file, err := os.CreateTemp(dir, "layer-*")
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(file, sum), content); err != nil {
		return "", err
	}
	desc.Digest = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
	return file.Name(), file.Close()
}

func annotate(annotations map[string]string, options blockcipher.LayerBlockCipherOptions, key Key) (map[string]string, error) {
	private, err := json.Marshal(options.Private)
	if err != nil {
		return nil, err
	}
	packet, err := wrap(private, key.Secret, key.ID)
	if err != nil {
		return nil, err
	}
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for name, value := range map[string]any{keysAnnotation: packet, optionsAnnotation: options.Public} {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		annotations[name] = base64.StdEncoding.EncodeToString(data)
	}
	return annotations, nil
}
