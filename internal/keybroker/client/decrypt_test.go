// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/outrigger/outrigger/internal/keybroker"
)

// sealed returns a new key, and a text encrypted for it.
func sealed(t testing.TB, text string) (*ecdsa.PrivateKey, *keybroker.JWE) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encrypter, err := jose.NewEncrypter(jose.A256GCM, jose.Recipient{Algorithm: jose.ECDH_ES_A256KW, Key: &key.PublicKey}, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := encrypter.Encrypt([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	jwe := &keybroker.JWE{}
	if err := json.Unmarshal([]byte(answer.FullSerialize()), jwe); err != nil {
		t.Fatal(err)
	}
	return key, jwe
}

func TestDecryptRefuses(t *testing.T) {
	key, good := sealed(t, "topsecret")
	other, _ := sealed(t, "")
	protected, err := base64.RawURLEncoding.DecodeString(good.Protected)
	if err != nil {
		t.Fatal(err)
	}
	header := func(from, to string) func(*keybroker.JWE) {
		if !bytes.Contains(protected, []byte(from)) {
			t.Fatalf("the header has no %s: %s", from, protected)
		}
		return func(j *keybroker.JWE) {
			j.Protected = base64.RawURLEncoding.EncodeToString(bytes.Replace(protected, []byte(from), []byte(to), 1))
		}
	}
	check := func(name string, text []byte, key *ecdsa.PrivateKey) {
		if got, err := decrypt(text, key); err == nil || got != nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, change := range map[string]func(*keybroker.JWE){
		"other alg":     header(`"ECDH-ES+A256KW"`, `"RSA1_5"`),
		"no encryption": header(`"A256GCM"`, `"none"`),
		"other curve":   header(`"P-256"`, `"P-521"`),
		"party info":    header(`"enc"`, `"apu":"YQ","enc"`),
		"critical":      header(`"enc"`, `"crit":["exp"],"enc"`),
		"zip":           header(`"enc"`, `"zip":"DEF","enc"`),
		"white space":   header(`,"enc"`, `, "enc"`),
		"off the curve": header(`"epk"`, `"epk":{"crv":"P-256","kty":"EC","x":"`+strings.Repeat("A", 43)+`","y":"`+strings.Repeat("A", 43)+`"},"old"`),
		"no key":        func(j *keybroker.JWE) { j.EncryptedKey = "" },
		"half a key":    func(j *keybroker.JWE) { j.EncryptedKey = j.EncryptedKey[:len(j.EncryptedKey)/2] },
		"half a text":   func(j *keybroker.JWE) { j.Ciphertext = j.Ciphertext[:len(j.Ciphertext)/2] },
		"half a tag":    func(j *keybroker.JWE) { j.Tag = j.Tag[:11] },
		"no tag":        func(j *keybroker.JWE) { j.Tag = "" },
		"no iv":         func(j *keybroker.JWE) { j.IV = "" },
	} {
		bad := *good
		change(&bad)
		text, _ := json.Marshal(bad)
		check(name, text, key)
	}
	text, _ := json.Marshal(good)
	check("other key", text, other)
	check("truncated", text[:len(text)-1], key)
	check("empty", nil, key)
	if _, err := decrypt(text, key); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

func FuzzJWE(f *testing.F) {
	key, good := sealed(f, "topsecret")
	text, _ := json.Marshal(good)
	f.Add(text)
	f.Add([]byte(`{"protected":"e30","encrypted_key":"","iv":"","ciphertext":"","tag":""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		// Nobody makes another one that decrypts.
		if got, err := decrypt(text, key); err == nil && !bytes.Equal(got, []byte("topsecret")) {
			t.Fatalf("%q decrypts to %q", text, got)
		}
	})
}
