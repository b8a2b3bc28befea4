// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/outrigger/outrigger/internal/keybroker"
)

// Seal returns a sealed Secret of the vault form, which points to a resource: guest-components,
// confidential-data-hub/docs/SEALED_SECRET.md. kid is the URI of the public key.
func Seal(key *ecdsa.PrivateKey, kid, resource string) (string, error) {
	for _, uri := range []string{kid, resource} {
		if _, err := keybroker.ResourcePath(uri); err != nil {
			return "", err
		}
	}
	none := map[string]any{}
	payload, err := json.Marshal(map[string]any{
		"version": "0.1.0", "type": "vault", "provider": "kbs", "name": resource, "provider_settings": none, "annotations": none,
	})
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		return "", fmt.Errorf("the key that signs: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	text, err := signed.CompactSerialize()
	return "sealed." + text, err
}

// PublicKey returns the public key of one that seals, as a JSON Web Key.
func PublicKey(key *ecdsa.PrivateKey) (string, error) {
	text, err := json.Marshal(jose.JSONWebKey{Key: key.Public()})
	return string(text), err
}
