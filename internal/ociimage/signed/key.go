// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// minRSA is the least size of an RSA key, in bits.
const minRSA = 2048

func (r *requirement) checkKey() error {
	if (r.KeyPath == "") == (r.KeyData == "") {
		return errors.New("takes either keyPath or keyData")
	}
	if r.KeyPath != "" {
		if !strings.HasPrefix(r.KeyPath, "kbs://") {
			return fmt.Errorf("keyPath %.256q is not a URI of a key broker, such as kbs:///default/cosign-public-key/1, and the VM has no files of yours: put the key into keyData", r.KeyPath)
		}
		return nil
	}
	_, err := r.keyFromData()
	return err
}

// keyName says in errors which key is meant.
func (r *requirement) keyName() string {
	if r.KeyPath != "" {
		return r.KeyPath
	}
	return "keyData"
}

func (r *requirement) key(ctx context.Context, broker Resources) (crypto.PublicKey, error) {
	if r.KeyPath == "" {
		return r.keyFromData()
	}
	if broker == nil {
		return nil, fmt.Errorf("key %s: no key broker is configured", r.KeyPath)
	}
	text, err := broker.Resource(ctx, r.KeyPath)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", r.KeyPath, err)
	}
	key, err := parsePublicKey(text)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", r.KeyPath, err)
	}
	return key, nil
}

// keyFromData takes PEM in base64, as containers-policy.json(5) has it, or PEM itself, as Confidential
// Containers' guest does.
func (r *requirement) keyFromData() (crypto.PublicKey, error) {
	text := []byte(r.KeyData)
	if !bytes.HasPrefix(text, []byte("-----BEGIN")) {
		var err error
		if text, err = base64.StdEncoding.DecodeString(r.KeyData); err != nil {
			return nil, fmt.Errorf("keyData: %w", err)
		}
	}
	key, err := parsePublicKey(text)
	if err != nil {
		return nil, fmt.Errorf("keyData: %w", err)
	}
	return key, nil
}

func parsePublicKey(text []byte) (crypto.PublicKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("is not one PEM block PUBLIC KEY")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	switch k := key.(type) {
	case ed25519.PublicKey, *ecdsa.PublicKey:
		return key, nil
	case *rsa.PublicKey:
		if k.N.BitLen() >= minRSA {
			return key, nil
		}
		return nil, fmt.Errorf("is an RSA key of %d bits, less than %d", k.N.BitLen(), minRSA)
	}
	return nil, fmt.Errorf("is a %T; keys may be of ECDSA, RSA and Ed25519", key)
}

// verifySignature reports whether a signature is right. The hash is SHA-256; newer ones by P-384 keys are of SHA-384.
func verifySignature(key crypto.PublicKey, message, signature []byte) bool {
	sum := sha256.Sum256(message)
	switch k := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(k, message, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], signature) == nil
	case *ecdsa.PublicKey:
		long := sha512.Sum384(message)
		return ecdsa.VerifyASN1(k, sum[:], signature) || k.Curve.Params().BitSize == 384 && ecdsa.VerifyASN1(k, long[:], signature)
	}
	return false
}

// ParsePrivateKey reads a private key in PEM: PKCS #8, or what openssl makes of EC and RSA keys.
func ParsePrivateKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("is not PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("is a PEM block %q; a key must be a PRIVATE KEY without a password", block.Type)
	}
	if err != nil {
		return nil, err
	}
	signer, is := key.(crypto.Signer)
	if !is {
		return nil, fmt.Errorf("is a %T, which does not sign", key)
	}
	return signer, nil
}

func sign(key crypto.Signer, message []byte) ([]byte, error) {
	if _, is := key.(ed25519.PrivateKey); is {
		return key.Sign(nil, message, crypto.Hash(0))
	}
	sum := sha256.Sum256(message)
	return key.Sign(nil, sum[:], crypto.SHA256)
}
