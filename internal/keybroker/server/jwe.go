// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"

	josecipher "github.com/go-jose/go-jose/v4/cipher"

	"github.com/outrigger/outrigger/internal/keybroker"
)

// keySize is that of A256KW and A256GCM, in bytes.
const keySize = 32

// header is the protected header. Its keys are in their order: guest-components' client writes the header again to authenticate it.
type header struct {
	Alg string    `json:"alg"`
	Enc string    `json:"enc"`
	EPK ephemeral `json:"epk"`
}

type ephemeral struct {
	Crv string `json:"crv"`
	Kty string `json:"kty"`
	X   string `json:"x"`
	Y   string `json:"y"`
}

// encrypt encrypts an answer for the key of a VM: RFC 7516, ECDH-ES+A256KW and A256GCM of RFC 7518. go-jose writes the
// keys of a header in another order.
func encrypt(plain []byte, to *ecdsa.PublicKey) (*keybroker.JWE, error) {
	sender, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	own := keybroker.PublicJWK(&sender.PublicKey)
	protected, err := json.Marshal(header{keybroker.KeyAlgorithm, keybroker.ContentAlgorithm, ephemeral{own.Crv, own.Kty, own.X, own.Y}})
	if err != nil {
		return nil, err
	}
	content := make([]byte, keySize)
	if _, err := rand.Read(content); err != nil {
		return nil, err
	}
	wrapping, err := aes.NewCipher(josecipher.DeriveECDHES(keybroker.KeyAlgorithm, nil, nil, sender, to, keySize))
	if err != nil {
		return nil, err
	}
	wrapped, err := josecipher.KeyWrap(wrapping, content)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(content)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	iv := make([]byte, gcm.NonceSize())
	if _, err := rand.Read(iv); err != nil {
		return nil, err
	}
	text := base64.RawURLEncoding.EncodeToString
	sealed := gcm.Seal(nil, iv, plain, []byte(text(protected)))
	end := len(sealed) - gcm.Overhead()
	return &keybroker.JWE{Protected: text(protected), EncryptedKey: text(wrapped), IV: text(iv), Ciphertext: text(sealed[:end]), Tag: text(sealed[end:])}, nil
}
