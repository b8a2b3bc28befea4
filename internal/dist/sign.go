// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// The part of a Sigstore bundle that a signature with a key has.
type (
	bundle struct {
		MediaType string        `json:"mediaType"`
		Material  material      `json:"verificationMaterial"`
		Signature blobSignature `json:"messageSignature"`
	}
	material struct {
		PublicKey struct {
			Hint string `json:"hint"`
		} `json:"publicKey"`
	}
	blobSignature struct {
		Digest struct {
			Algorithm string `json:"algorithm"`
			Digest    []byte `json:"digest"`
		} `json:"messageDigest"`
		Signature []byte `json:"signature"`
	}
)

// sign signs content, in both forms that cosign verifies: what `cosign sign-blob` writes with
// --output-signature, and with --bundle, without the entry of a public log. The same key and
// content give the same bytes: the nonce is that of RFC 6979.
func sign(key *ecdsa.PrivateKey, content []byte) (detached, bundled []byte, err error) {
	digest := sha256.Sum256(content)
	raw, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, nil, err
	}
	b := bundle{MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json"}
	b.Signature.Digest.Algorithm, b.Signature.Digest.Digest, b.Signature.Signature = "SHA2_256", digest[:], raw
	if b.Material.PublicKey.Hint, err = keyHint(key); err != nil {
		return nil, nil, err
	}
	encoded, err := json.Marshal(b)
	if err != nil {
		return nil, nil, err
	}
	return []byte(base64.StdEncoding.EncodeToString(raw)), append(encoded, '\n'), nil
}

// keyHint is the name of a public key in bundles, and what is printed of it.
func keyHint(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", fmt.Errorf("public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(sum[:]), nil
}
