// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"
)

const testPassword = "correct horse"

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func writeKey(t *testing.T, blocks ...*pem.Block) string {
	t.Helper()
	var data []byte
	for _, block := range blocks {
		data = append(data, pem.EncodeToMemory(block)...)
	}
	file := filepath.Join(t.TempDir(), "cosign.key")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// encrypted is what `cosign generate-key-pair` writes.
func encrypted(t *testing.T, kind string, key any) *pem.Block {
	t.Helper()
	var e envelope
	e.KDF.Name, e.KDF.Params.N, e.KDF.Params.R, e.KDF.Params.P = "scrypt", 32768, 8, 1
	e.Cipher.Name = "nacl/secretbox"
	e.KDF.Salt, e.Cipher.Nonce = make([]byte, 32), make([]byte, 24)
	rand.Read(e.KDF.Salt)
	rand.Read(e.Cipher.Nonce)
	derived, err := scrypt.Key([]byte(testPassword), e.KDF.Salt, e.KDF.Params.N, e.KDF.Params.R, e.KDF.Params.P, 32)
	if err != nil {
		t.Fatal(err)
	}
	e.Ciphertext = secretbox.Seal(nil, pkcs8(t, key), (*[24]byte)(e.Cipher.Nonce), (*[32]byte)(derived))
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: kind, Bytes: data}
}

func says(password string) Password {
	return func() ([]byte, error) { return []byte(password), nil }
}

// A key is read in each form, and what it signs is what `cosign verify-blob`
// verifies: base64 of an ASN.1 signature of the SHA-256, by ECDSA.
func TestSignatureAsCosignVerifiesIt(t *testing.T) {
	t.Parallel()
	key := newKey(t, elliptic.P256())
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for form, file := range map[string]string{
		"cosign":         writeKey(t, encrypted(t, sigstoreKey, key)),
		"earlier cosign": writeKey(t, encrypted(t, cosignKey, key)),
		"PKCS #8":        writeKey(t, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8(t, key)}),
		"openssl":        writeKey(t, &pem.Block{Type: "EC PARAMETERS", Bytes: []byte("curve")}, &pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}),
	} {
		t.Run(form, func(t *testing.T) {
			loaded, err := loadKey(file, says(testPassword))
			if err != nil {
				t.Fatal(err)
			}
			content := []byte("content of " + form)
			detached, bundled, err := sign(loaded, content)
			if err != nil {
				t.Fatal(err)
			}
			if again, _, err := sign(loaded, content); err != nil || !bytes.Equal(again, detached) {
				t.Errorf("another signature of the same: %v", err)
			}
			digest := sha256.Sum256(content)
			raw, err := base64.StdEncoding.DecodeString(string(detached))
			if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, digest[:], raw) {
				t.Errorf("the signature is not verified: %v", err)
			}
			if other := sha256.Sum256([]byte("other")); ecdsa.VerifyASN1(&key.PublicKey, other[:], raw) {
				t.Error("the signature is one of other content too")
			}
			var b bundle
			if err := json.Unmarshal(bundled, &b); err != nil || !bytes.Equal(b.Signature.Signature, raw) || !bytes.Equal(b.Signature.Digest.Digest, digest[:]) {
				t.Errorf("bundle %s: %v", bundled, err)
			}
		})
	}
}

func TestWhatIsNoKey(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	greedy := encrypted(t, sigstoreKey, newKey(t, elliptic.P256()))
	greedy.Bytes = bytes.Replace(greedy.Bytes, []byte("32768"), []byte("1073741824"), 1)
	sound := writeKey(t, encrypted(t, sigstoreKey, newKey(t, elliptic.P256())))
	for name, c := range map[string]struct {
		file     string
		password Password
		want     string
	}{
		"no file":          {"/nowhere/cosign.key", nil, "no such file"},
		"not PEM":          {writeKey(t), nil, "not a private key in PEM"},
		"RSA":              {writeKey(t, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8(t, rsaKey)}), nil, "not an EC key"},
		"another curve":    {writeKey(t, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8(t, newKey(t, elliptic.P384()))}), nil, "P-256"},
		"PKCS #8 password": {writeKey(t, &pem.Block{Type: "ENCRYPTED PRIVATE KEY"}), nil, "ENCRYPTED PRIVATE KEY"},
		"wrong password":   {sound, says("wrong horse"), "the password is wrong"},
		"empty password":   {sound, says(""), "the password is wrong"},
		"no password":      {sound, func() ([]byte, error) { return nil, nil }, "COSIGN_PASSWORD"},
		"password file":    {sound, func() ([]byte, error) { return nil, errors.New("-key-password-file: gone") }, "gone"},
		"greedy":           {writeKey(t, greedy), says(testPassword), "cosign does not"},
		"no JSON":          {writeKey(t, &pem.Block{Type: sigstoreKey, Bytes: []byte("{")}), says(testPassword), "not cosign's"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadKey(c.file, c.password)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v does not say %q", err, c.want)
			}
			if strings.Contains(err.Error(), "horse") {
				t.Errorf("the error has the password in it: %v", err)
			}
		})
	}
}
