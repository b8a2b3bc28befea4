// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Of cosign's signatures (sigstore/cosign, specs/SIGNATURE_SPEC.md).
const (
	payloadMediaType    types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation                 = "dev.cosignproject.cosign/signature"
	payloadType                         = "cosign container image signature"
)

// Bounds of what a registry says. A payload has about 250 bytes, a signature at most 700.
const (
	maxSignatures = 64
	maxPayload    = 16 << 10
	maxSignature  = 4 << 10
)

// payload is what is signed.
type payload struct {
	Critical struct {
		Identity struct {
			DockerReference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]any `json:"optional"`
}

// signatureTag is where the signatures of a digest are.
func signatureTag(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex + ".sig" }

var errUnsigned = errors.New("there is no signature")

func (r *requirement) verifySigned(ctx context.Context, image Image, broker Resources) error {
	key, err := r.key(ctx, broker)
	if err != nil {
		return err
	}
	failed := fmt.Errorf("%w: %s has no tag %s (Sigstore bundles are not read)",
		errUnsigned, image.Reference.Context().Name(), signatureTag(image.Digests[0]))
	for _, digest := range image.Digests {
		err := r.verifyDigest(ctx, image, digest, key)
		if err == nil || !errors.Is(err, errUnsigned) {
			failed = err
		}
		if err == nil {
			return nil
		}
	}
	return failed
}

// verifyDigest looks for a signature of one digest that is right. The error is that of the last one that is not.
func (r *requirement) verifyDigest(ctx context.Context, image Image, digest v1.Hash, key crypto.PublicKey) error {
	layers, err := signatures(ctx, image, digest)
	if err != nil {
		return err
	}
	failed := errUnsigned
	for _, layer := range layers {
		if failed = r.verifyLayer(ctx, image, digest, key, layer); failed == nil {
			return nil
		}
	}
	return failed
}

// signatures returns the layers of the image that has the signatures of a digest.
func signatures(ctx context.Context, image Image, digest v1.Hash) ([]v1.Descriptor, error) {
	raw, err := image.Manifest(ctx, signatureTag(digest))
	if status := (*transport.Error)(nil); errors.As(err, &status) && status.StatusCode == http.StatusNotFound {
		return nil, errUnsigned
	}
	if err != nil {
		return nil, fmt.Errorf("signatures: %w", err)
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("signatures: manifest %s: %w", signatureTag(digest), err)
	}
	if n := len(manifest.Layers); n > maxSignatures {
		return nil, fmt.Errorf("it has %d signatures, more than %d", n, maxSignatures)
	}
	return manifest.Layers, nil
}

func (r *requirement) verifyLayer(ctx context.Context, image Image, digest v1.Hash, key crypto.PublicKey, layer v1.Descriptor) error {
	encoded := layer.Annotations[signatureAnnotation]
	switch {
	case layer.MediaType != payloadMediaType:
		return fmt.Errorf("its signature has type %.128q, not %s", layer.MediaType, payloadMediaType)
	case encoded == "":
		return fmt.Errorf("its signature has no annotation %s", signatureAnnotation)
	case len(encoded) > maxSignature || layer.Size > maxPayload:
		return fmt.Errorf("its signature has %d bytes for a payload of %d, more than %d and %d", len(encoded), layer.Size, maxSignature, maxPayload)
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		return fmt.Errorf("its signature: %w", err)
	}
	signed, err := image.Blob(ctx, layer.Digest.String())
	if err != nil {
		return fmt.Errorf("signatures: %w", err)
	}
	if !verifySignature(key, signed, signature) {
		return fmt.Errorf("it is not signed by the key of %s", r.keyName())
	}
	return r.checkPayload(signed, image, digest)
}

// checkPayload compares what is signed with what is to be pulled.
func (r *requirement) checkPayload(signed []byte, image Image, digest v1.Hash) error {
	var p payload
	if err := json.Unmarshal(signed, &p); err != nil {
		return fmt.Errorf("what is signed: %w", err)
	}
	if p.Critical.Type != payloadType {
		return fmt.Errorf("what is signed is a %.64q, not a %q", p.Critical.Type, payloadType)
	}
	if p.Critical.Image.Digest != digest.String() {
		return fmt.Errorf("another image is signed: %.128q, not %s", p.Critical.Image.Digest, digest)
	}
	if err := r.SignedIdentity.allows(image.Reference, p.Critical.Identity.DockerReference); err != nil {
		return fmt.Errorf("its signature: %w", err)
	}
	return nil
}
