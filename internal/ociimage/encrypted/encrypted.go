// SPDX-License-Identifier: Apache-2.0

// Package encrypted reads and writes images whose layers are encrypted as ocicrypt does it. Each layer
// has a key of its own, which is wrapped by a key-encryption key of a key broker: an annotation of the
// layer says which (Confidential Containers, confidential-data-hub/hub/src/image/annotation_packet).
//
// Encryption says nothing of who has made an image: a registry may put plain layers in place of
// encrypted ones. Signatures do that (package signed).
package encrypted

import (
	"context"
	"crypto/aes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containers/ocicrypt/blockcipher"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// suffix is what media types of encrypted layers end in.
const suffix = "+encrypted"

// Annotations of an encrypted layer. That of keys has packets in base64, with commas between them.
const (
	keysAnnotation    = "org.opencontainers.image.enc.keys.provider.attestation-agent"
	optionsAnnotation = "org.opencontainers.image.enc.pubopts"
)

// Bounds of what a registry says. A packet has about 600 bytes, and one for each key that opens the layer.
const (
	maxPackets = 8
	maxPacket  = 16 << 10
	maxOptions = 4 << 10
)

// Resources is a key broker.
type Resources interface {
	// Resource returns what is at a URI such as kbs:///default/key/1.
	Resource(ctx context.Context, uri string) ([]byte, error)
}

// Decrypter returns a function that makes the plain layer of an encrypted one. It gets the layer's key
// at once, before the first byte is read; it reads nothing itself. Plain bytes are returned before they
// can be verified: only the reader's io.EOF says that the ciphertext is the one that was encrypted. The
// digest in a layer's private options is not compared, since skopeo's may be that of the layer before
// it was compressed; the image's config has one.
func Decrypter(broker Resources) func(ctx context.Context, layer v1.Descriptor, ciphertext io.Reader) (io.Reader, error) {
	return func(ctx context.Context, layer v1.Descriptor, ciphertext io.Reader) (io.Reader, error) {
		options, err := layerOptions(ctx, broker, layer.Annotations)
		if err != nil {
			return nil, fmt.Errorf("encrypted layer %s: %w", layer.Digest, err)
		}
		cipher, err := blockcipher.NewLayerBlockCipherHandler() // each has the state of one layer
		if err != nil {
			return nil, err
		}
		plain, _, err := cipher.Decrypt(ciphertext, options)
		if err != nil {
			return nil, fmt.Errorf("encrypted layer %s: %w", layer.Digest, err)
		}
		return &named{plain, layer.Digest}, nil
	}
}

// named says in errors of a layer which one it is.
type named struct {
	io.Reader
	layer v1.Hash
}

// Read implements io.Reader.
func (r *named) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("decrypt layer %s: %w", r.layer, err)
	}
	return n, err
}

func layerOptions(ctx context.Context, broker Resources, annotations map[string]string) (o blockcipher.LayerBlockCipherOptions, err error) {
	if err := decode(annotations[optionsAnnotation], maxOptions, &o.Public); err != nil {
		return o, fmt.Errorf("annotation %s: %w", optionsAnnotation, err)
	}
	private, err := unwrapAny(ctx, broker, annotations[keysAnnotation])
	if err != nil {
		return o, fmt.Errorf("annotation %s: %w", keysAnnotation, err)
	}
	if json.Unmarshal(private, &o.Private) != nil { // whose message would quote a secret
		return o, errors.New("what its key unwraps is not the options of a layer: it was encrypted with another key")
	}
	// Public options come before private ones in the cipher, and a nonce of another size makes it panic.
	o.Public.CipherOptions = nil
	if n := len(o.Private.CipherOptions["nonce"]); n != aes.BlockSize {
		return o, fmt.Errorf("its nonce has %d bytes, not %d", n, aes.BlockSize)
	}
	return o, nil
}

// decode reads an annotation: JSON in base64, of at most limit bytes.
func decode(text string, limit int, into any) error {
	switch {
	case text == "":
		return errors.New("is missing")
	case len(text) > base64.StdEncoding.EncodedLen(limit):
		return fmt.Errorf("has %d bytes, more than %d", len(text), base64.StdEncoding.EncodedLen(limit))
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	return err
}

// unwrapAny takes the first packet that opens.
func unwrapAny(ctx context.Context, broker Resources, text string) ([]byte, error) {
	packets := strings.SplitN(text, ",", maxPackets+1)
	if len(packets) > maxPackets {
		return nil, fmt.Errorf("has more than %d packets", maxPackets)
	}
	var failed error
	for _, encoded := range packets {
		var p packet
		err := decode(encoded, maxPacket, &p)
		if err == nil {
			var data []byte
			if data, err = p.unwrap(ctx, broker); err == nil {
				return data, nil
			}
		}
		if failed == nil {
			failed = err
		}
	}
	return nil, failed
}
