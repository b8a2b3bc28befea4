// SPDX-License-Identifier: Apache-2.0

// Package keybroker has the messages between a VM and a key broker, which gives keys to
// VMs that attest: the protocol of Trustee's Key Broker Service (kbs/docs/kbs_attestation_protocol.md
// there), which packages client and server speak.
package keybroker

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Version of the protocol. Trustee takes its own alone.
const Version = "0.4.0"

// Prefix of all paths.
const Prefix = "/kbs/v0/"

// Cookie names the session.
const Cookie = "kbs-session-id"

// Algorithms of keys and answers (RFC 7518).
const (
	KeyAlgorithm     = "ECDH-ES+A256KW"
	ContentAlgorithm = "A256GCM"
	Curve            = "P-256"
)

// MaxMessage is the largest message that either end reads, in bytes: Trustee's limit is 2 MiB for what it is sent, and
// evidence of ours may have a boot log.
const MaxMessage = 8 << 20

// Request begins a session: POST auth.
type Request struct {
	Version string `json:"version"`
	TEE     string `json:"tee"`
	// ExtraParams is an object, or the empty string of older clients.
	ExtraParams json.RawMessage `json:"extra-params"`
}

// Challenge is what the broker wants to be in the evidence.
type Challenge struct {
	Nonce       string          `json:"nonce"`
	ExtraParams json.RawMessage `json:"extra-params,omitempty"`
}

// Attestation answers a Challenge: POST attest.
type Attestation struct {
	InitData    *InitData   `json:"init-data,omitempty"`
	RuntimeData RuntimeData `json:"runtime-data"`
	Evidence    Evidence    `json:"tee-evidence"`
}

// InitData is the VM's, whole.
type InitData struct {
	// Format is toml.
	Format string `json:"format"`
	Body   string `json:"body"`
}

// RuntimeData is what evidence is bound to.
type RuntimeData struct {
	Nonce  string `json:"nonce"`
	PubKey JWK    `json:"tee-pubkey"`
}

// Evidence is that of the VM, and of its devices: a JSON object in a string, or "".
type Evidence struct {
	Primary    json.RawMessage `json:"primary_evidence"`
	Additional string          `json:"additional_evidence"`
}

// Token is what a broker answers to evidence that it accepts: a JWT.
type Token struct {
	Token string `json:"token"`
}

// JWE is an answer for the key in the evidence: RFC 7516, section 7.2.2.
type JWE struct {
	Protected    string `json:"protected"`
	EncryptedKey string `json:"encrypted_key"`
	IV           string `json:"iv"`
	Ciphertext   string `json:"ciphertext"`
	Tag          string `json:"tag"`
}

// Problem is an answer that is an error: RFC 7807.
type Problem struct {
	Type   string `json:"type"`
	Detail string `json:"detail"`
}

// ProblemType is what the types of problems begin with.
const ProblemType = "https://github.com/confidential-containers/kbs/errors/"

// What a broker answers, whichever status it comes with.
var (
	// ErrNotFound: the broker has no such resource.
	ErrNotFound = errors.New("not found")
	// ErrRefused: the broker does not give it to this VM.
	ErrRefused = errors.New("refused")
)

// JWK is a public key of P-256 (RFC 7517).
type JWK struct {
	Alg string `json:"alg"`
	Crv string `json:"crv"`
	Kty string `json:"kty"`
	X   string `json:"x"`
	Y   string `json:"y"`
}

// coordinate is the size of those of P-256, in bytes.
const coordinate = 32

// PublicJWK returns a key as the protocol has it.
func PublicJWK(key *ecdsa.PublicKey) JWK {
	text := func(n *big.Int) string {
		return base64.RawURLEncoding.EncodeToString(n.FillBytes(make([]byte, coordinate)))
	}
	return JWK{Alg: KeyAlgorithm, Crv: Curve, Kty: "EC", X: text(key.X), Y: text(key.Y)}
}

// Key returns the key, if it is one of P-256.
func (k JWK) Key() (*ecdsa.PublicKey, error) {
	if k.Kty != "EC" || k.Crv != Curve || k.Alg != KeyAlgorithm {
		return nil, fmt.Errorf("tee-pubkey of %.32q, curve %.32q, for %.32q: want EC, %s, %s", k.Kty, k.Crv, k.Alg, Curve, KeyAlgorithm)
	}
	x, errX := base64.RawURLEncoding.DecodeString(k.X)
	y, errY := base64.RawURLEncoding.DecodeString(k.Y)
	if errors.Join(errX, errY) != nil || len(x) != coordinate || len(y) != coordinate {
		return nil, errors.New("tee-pubkey: x and y are not 32 bytes in base64url")
	}
	key := &ecdsa.PublicKey{Curve: elliptic.P256(), X: new(big.Int).SetBytes(x), Y: new(big.Int).SetBytes(y)}
	if _, err := key.ECDH(); err != nil {
		return nil, errors.New("tee-pubkey is not a point of the curve")
	}
	return key, nil
}

// Hashes are those of report data, by the names of the protocol.
var Hashes = map[string]func([]byte) []byte{
	"sha256": func(data []byte) []byte { sum := sha256.Sum256(data); return sum[:] },
	"sha384": func(data []byte) []byte { sum := sha512.Sum384(data); return sum[:] },
	"sha512": func(data []byte) []byte { sum := sha512.Sum512(data); return sum[:] },
}

// DefaultHash is that of a challenge which selects none.
const DefaultHash = "sha384"

// ReportData returns what primary evidence is bound to: the hash of the runtime data and the additional evidence as canonical JSON.
func (a *Attestation) ReportData(hash string) ([]byte, error) {
	sum, known := Hashes[hash]
	if !known {
		return nil, fmt.Errorf("hash %.32q is none of sha256, sha384, sha512", hash)
	}
	for _, text := range []string{a.Evidence.Additional, a.RuntimeData.Nonce} {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) { // Go escapes some of them in another way
			return nil, errors.New("the nonce or the evidence of devices has other characters than printable ASCII")
		}
	}
	// RFC 8785: keys in their order, nothing between, and no escapes for HTML. Keys of JWK are in their order, too.
	var canonical bytes.Buffer
	encoder := json.NewEncoder(&canonical)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Additional string `json:"additional-evidence"`
		Nonce      string `json:"nonce"`
		PubKey     JWK    `json:"tee-pubkey"`
	}{a.Evidence.Additional, a.RuntimeData.Nonce, a.RuntimeData.PubKey})
	return sum(bytes.TrimRight(canonical.Bytes(), "\n")), err
}
