// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"
)

// The PEM types of keys as cosign writes them, now and earlier.
const (
	sigstoreKey = "ENCRYPTED SIGSTORE PRIVATE KEY"
	cosignKey   = "ENCRYPTED COSIGN PRIVATE KEY"
)

// Password returns the password of a key; nil says that none was given.
type Password func() ([]byte, error)

// loadKey reads a private key: cosign's encrypted one, or plain PEM (PKCS #8 or
// SEC 1). Signatures are ECDSA with P-256, the only kind that cosign makes.
func loadKey(file string, password Password) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	block := keyBlock(data)
	if block == nil {
		return nil, fmt.Errorf("-key %s is not a private key in PEM: give cosign's cosign.key or a plain EC key", file)
	}
	key, err := parseKey(block, password)
	if err != nil {
		return nil, fmt.Errorf("-key %s: %w", file, err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("-key %s is not an EC key on the curve P-256, which is what cosign makes", file)
	}
	return private, nil
}

// keyBlock returns the first block that is a private key; openssl writes the
// parameters of the curve before it.
func keyBlock(data []byte) *pem.Block {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil || strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return block
		}
	}
}

func parseKey(block *pem.Block, password Password) (any, error) {
	switch block.Type {
	case sigstoreKey, cosignKey:
		plain, err := decrypt(block.Bytes, password)
		if err != nil {
			return nil, err
		}
		return x509.ParsePKCS8PrivateKey(plain)
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	}
	return nil, fmt.Errorf("keys of the type %q are not read: give cosign's cosign.key or a plain EC key", block.Type)
}

// envelope is the JSON of a cosign key.
type envelope struct {
	KDF struct {
		Name   string `json:"name"`
		Params struct {
			N int `json:"N"`
			R int `json:"r"`
			P int `json:"p"`
		} `json:"params"`
		Salt []byte `json:"salt"`
	} `json:"kdf"`
	Cipher struct {
		Name  string `json:"name"`
		Nonce []byte `json:"nonce"`
	} `json:"cipher"`
	Ciphertext []byte `json:"ciphertext"`
}

// maxScrypt bounds the memory that a key's file may ask for, in bytes.
const maxScrypt = 1 << 30

func decrypt(data []byte, password Password) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("its content is not cosign's: %w", err)
	}
	p := e.KDF.Params
	if e.KDF.Name != "scrypt" || e.Cipher.Name != "nacl/secretbox" || len(e.Cipher.Nonce) != 24 ||
		p.N < 2 || p.R < 1 || p.P < 1 || p.P > 16 || p.N > maxScrypt/128/p.R {
		return nil, fmt.Errorf("it is encrypted with %q and %q in a way that cosign does not", e.KDF.Name, e.Cipher.Name)
	}
	secret, err := password()
	switch {
	case err != nil:
		return nil, err
	case secret == nil:
		return nil, errors.New("it is encrypted: set COSIGN_PASSWORD, or give a file with -key-password-file")
	}
	derived, err := scrypt.Key(secret, e.KDF.Salt, p.N, p.R, p.P, 32)
	if err != nil {
		return nil, err
	}
	plain, ok := secretbox.Open(nil, e.Ciphertext, (*[24]byte)(e.Cipher.Nonce), (*[32]byte)(derived))
	if !ok {
		return nil, errors.New("the password is wrong; it was read from COSIGN_PASSWORD or -key-password-file")
	}
	return plain, nil
}
