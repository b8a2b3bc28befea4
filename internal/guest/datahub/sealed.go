// SPDX-License-Identifier: Apache-2.0

package datahub

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/keybroker"
)

// MaxSealed is the largest sealed Secret in bytes: a Secret has at most 1 MiB, and base64 a third more.
const MaxSealed = 2 << 20

// sealedSecret is the payload. Fields of its other type are empty.
type sealedSecret struct {
	Version  string `json:"version"`
	Type     string `json:"type"`
	Provider string `json:"provider"`
	// Name of a vault secret is its URI.
	Name string `json:"name"`
	// KeyID of an envelope is the URI of the key that decrypts EncryptedKey.
	KeyID         string `json:"key_id"`
	EncryptedKey  []byte `json:"encrypted_key"`
	EncryptedData []byte `json:"encrypted_data"`
	WrapType      string `json:"wrap_type"`
	IV            []byte `json:"iv"`
	// Annotations say how EncryptedKey was encrypted.
	Annotations struct {
		IV       []byte `json:"iv"`
		WrapType string `json:"wrap_type"`
	} `json:"annotations"`
}

// Unseal returns the plain text of a sealed Secret.
func (h *Hub) Unseal(ctx context.Context, text []byte) ([]byte, error) {
	return h.unseal(ctx, text, func(*sealedSecret) error { return nil })
}

// UnsealVolumeKey is Unseal for the key of a disk. Whoever has the disk can try keys, so that no other Secret of the pod may be one: the node
// chooses the seal.
func (h *Hub) UnsealVolumeKey(ctx context.Context, text []byte) ([]byte, error) {
	return h.unseal(ctx, text, func(s *sealedSecret) error {
		path, err := keybroker.ResourcePath(s.Name)
		if parts := strings.Split(path, "/"); s.Type == "vault" && err == nil && len(parts) == 4 && parts[2] == volumeKey {
			return nil
		}
		return fmt.Errorf("it is not for a volume: want one of type vault with the resource kbs:///REPOSITORY/%s/TAG", volumeKey)
	})
}

// volumeKey is the type of resources that are keys of volumes.
const volumeKey = "volume"

func (h *Hub) unseal(ctx context.Context, text []byte, check func(*sealedSecret) error) ([]byte, error) {
	if len(text) > MaxSealed {
		return nil, fmt.Errorf("sealed Secret: %d bytes, at most %d are read", len(text), MaxSealed)
	}
	payload, err := h.payload(ctx, strings.TrimPrefix(strings.TrimSpace(string(text)), attest.SealedPrefix))
	if err != nil {
		return nil, fmt.Errorf("sealed Secret: %w", err)
	}
	var secret sealedSecret
	if err := json.Unmarshal(payload, &secret); err != nil {
		return nil, errors.New("sealed Secret: its payload is not the JSON that is expected there")
	}
	if err := check(&secret); err != nil {
		return nil, fmt.Errorf("sealed Secret: %w", err)
	}
	plain, err := h.open(ctx, &secret)
	if err != nil {
		return nil, fmt.Errorf("sealed Secret: %w", err)
	}
	return plain, nil
}

// payload returns what was signed, if the signature is that of the key which the header names.
func (h *Hub) payload(ctx context.Context, text string) ([]byte, error) {
	if h.settings.unsigned { // the header may be any word then
		parts := strings.Split(text, ".")
		if len(parts) != 3 {
			return nil, errors.New("not of the form sealed.HEADER.PAYLOAD.SIGNATURE")
		}
		return base64.RawURLEncoding.DecodeString(parts[1])
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, errors.New("not a JWS that is signed with ES256; for tests skip_sealed_secret_verification in cdh.toml takes any signature")
	}
	kid := signed.Signatures[0].Protected.KeyID
	if !strings.HasPrefix(kid, "kbs://") && !strings.HasPrefix(kid, "kbs+") {
		return nil, fmt.Errorf("the kid of its signature is %.128q: this VM image takes the URI of a key that the broker has, kbs:///...", kid)
	}
	data, err := h.Resource(ctx, kid)
	if err != nil {
		return nil, fmt.Errorf("the key of its signature: %w", err)
	}
	var key jose.JSONWebKey
	if err := key.UnmarshalJSON(data); err != nil || !key.Valid() {
		return nil, fmt.Errorf("the key of its signature, %.128q, is not a JSON Web Key", kid)
	}
	if !key.IsPublic() {
		key = key.Public()
	}
	payload, err := signed.Verify(key)
	if err != nil {
		return nil, fmt.Errorf("its signature is not that of the key %.128q", kid)
	}
	return payload, nil
}

func (h *Hub) open(ctx context.Context, s *sealedSecret) ([]byte, error) {
	switch {
	case s.Version != "0.1.0":
		return nil, fmt.Errorf("version %.32q: this VM image reads 0.1.0", s.Version)
	case s.Provider != "kbs":
		return nil, fmt.Errorf("provider %.32q: this VM image has kbs", s.Provider)
	case s.Type == "vault":
		return h.Resource(ctx, s.Name)
	case s.Type != "envelope":
		return nil, fmt.Errorf("type %.32q is neither vault nor envelope", s.Type)
	}
	key, err := h.Resource(ctx, s.KeyID)
	if err != nil {
		return nil, err
	}
	if key, err = decrypt(s.Annotations.WrapType, key, s.Annotations.IV, s.EncryptedKey); err != nil {
		return nil, fmt.Errorf("its key: %w", err)
	}
	return decrypt(s.WrapType, key, s.IV, s.EncryptedData)
}

// decrypt opens what was encrypted with A256GCM; other schemes do not notice changes.
func decrypt(scheme string, key, iv, data []byte) ([]byte, error) {
	if scheme != "A256GCM" {
		return nil, fmt.Errorf("wrap_type %.32q: this VM image has A256GCM", scheme)
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("a key of %d bytes: A256GCM has 32", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	if len(iv) != gcm.NonceSize() {
		return nil, fmt.Errorf("an iv of %d bytes: A256GCM has %d", len(iv), gcm.NonceSize())
	}
	plain, err := gcm.Open(nil, iv, data, nil)
	if err != nil {
		return nil, errors.New("it was encrypted with another key, or was changed")
	}
	return plain, nil
}
