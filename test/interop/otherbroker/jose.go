// SPDX-License-Identifier: Apache-2.0

package otherbroker

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math/big"
	"slices"
	"time"
)

// teeKey is a tee-pubkey: rsa or ec, and the JWK as it was sent.
type teeKey struct {
	alg, crv string
	rsa      *rsa.PublicKey
	ec       *ecdh.PublicKey
	jwk      json.RawMessage
}

var base64url = base64.RawURLEncoding.Strict()

var curves = map[string]ecdh.Curve{"P-256": ecdh.P256(), "P-384": ecdh.P384(), "P-521": ecdh.P521()}

// teeKey reads a JWK as RFC 7518 section 6 has it, and records where it is not as kbs.yaml.
func (v *visit) teeKey(raw json.RawMessage) (*teeKey, error) {
	jwk, err := fields(raw)
	if err != nil {
		return nil, err
	}
	if _, err := v.check(raw, teePubKey[text(jwk["kty"])]); err != nil {
		return nil, err
	}
	number := map[string][]byte{}
	for _, name := range []string{"n", "e", "x", "y"} {
		if number[name], err = base64url.DecodeString(text(jwk[name])); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	key := &teeKey{alg: text(jwk["alg"]), crv: text(jwk["crv"]), jwk: raw}
	curve := curves[key.crv]
	n, e := new(big.Int).SetBytes(number["n"]), new(big.Int).SetBytes(number["e"])
	switch kty := text(jwk["kty"]); {
	case kty == "EC" && curve != nil && len(number["x"]) == len(number["y"]):
		key.ec, err = curve.NewPublicKey(slices.Concat([]byte{4}, number["x"], number["y"]))
		return key, err
	case kty == "RSA" && n.BitLen() >= 2048 && n.BitLen() <= 8192 && e.BitLen() >= 2 && e.BitLen() <= 31 && number["n"][0] != 0 && number["e"][0] != 0:
		key.rsa = &rsa.PublicKey{N: n, E: int(e.Int64())}
		return key, nil
	}
	v.note("deviation: tee-pubkey is neither RSA of 2048 to 8192 bits nor EC on P-256, P-384 or P-521")
	return nil, errors.New("it is not a key of a kind that is known here")
}

// seal returns a JWE, flattened, by A256GCM. alg is the key's, as the text wants.
func seal(key *teeKey, secret []byte) (map[string]string, error) {
	random := make([]byte, 32+12)
	_, _ = rand.Read(random) // never fails, by its contract
	contentKey, iv := random[:32], random[32:]
	header := map[string]any{"alg": key.alg, "enc": "A256GCM"}
	wrapped, err := wrap(key, contentKey, header)
	if err != nil {
		return nil, err
	}
	joined, _ := json.Marshal(header) // of strings
	protected := base64url.EncodeToString(joined)
	block, err := aes.NewCipher(contentKey)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	sealed := gcm.Seal(nil, iv, secret, []byte(protected))
	body, tag := sealed[:len(secret)], sealed[len(secret):]
	return map[string]string{
		"protected": protected, "encrypted_key": base64url.EncodeToString(wrapped), "iv": base64url.EncodeToString(iv),
		"ciphertext": base64url.EncodeToString(body), "tag": base64url.EncodeToString(tag),
	}, nil
}

// wrap encrypts the content key, and adds epk to the header for ECDH-ES.
func wrap(key *teeKey, contentKey []byte, header map[string]any) ([]byte, error) {
	oaep := map[string]func() hash.Hash{"RSA-OAEP": sha1.New, "RSA-OAEP-256": sha256.New}[key.alg]
	switch {
	case key.rsa != nil && oaep != nil:
		return rsa.EncryptOAEP(oaep(), rand.Reader, key.rsa, contentKey, nil)
	case key.ec == nil || key.alg != "ECDH-ES+A256KW":
		return nil, fmt.Errorf("alg %.40q of tee-pubkey is not for its kty, or not known here", key.alg)
	}
	ephemeral, err := key.ec.Curve().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	shared, err := ephemeral.ECDH(key.ec)
	if err != nil {
		return nil, err
	}
	point := ephemeral.PublicKey().Bytes()[1:]
	header["epk"] = map[string]string{"kty": "EC", "crv": key.crv,
		"x": base64url.EncodeToString(point[:len(point)/2]), "y": base64url.EncodeToString(point[len(point)/2:])}
	return wrapAES(concatKDF(shared, key.alg, "", "", 32), contentKey)
}

// concatKDF is RFC 7518 section 4.6.2 for one round, so for at most 32 bytes.
func concatKDF(shared []byte, alg, apu, apv string, size int) []byte {
	input := append([]byte{0, 0, 0, 1}, shared...)
	for _, info := range []string{alg, apu, apv} {
		input = append(binary.BigEndian.AppendUint32(input, uint32(len(info))), info...)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(input, uint32(size*8)))
	return sum[:size]
}

// wrapAES is RFC 3394 section 2.2.1 with the default initial value.
func wrapAES(kek, key []byte) ([]byte, error) {
	block, err := aes.NewCipher(kek)
	if err != nil {
		return nil, err
	}
	out := append([]byte{0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6}, key...)
	n, in := len(key)/8, make([]byte, 16)
	for step := 1; step <= 6*n; step++ {
		r := out[8*((step-1)%n+1):][:8]
		copy(in, out[:8])
		copy(in[8:], r)
		block.Encrypt(in, in)
		copy(r, in[8:])
		binary.BigEndian.PutUint64(out, binary.BigEndian.Uint64(in)^uint64(step))
	}
	return out, nil
}

// token is the text's JWT, by RS256 as its example. kbs.yaml calls exp "ext" and
// has jwk, tcb-status and evaluation-report as strings; the text has jwk as a key.
func (b *Broker) token(key *teeKey, a Attestation, until time.Time) (token string, err error) {
	if b.signer == nil {
		if b.signer, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return "", err
		}
	}
	status, _ := json.Marshal(a) // of strings
	claims, err := json.Marshal(map[string]any{
		"iat": time.Now().Unix(), "exp": until.Unix(), "iss": "https://localhost/",
		"jwk":        map[string]string{"kty": "RSA", "alg": "RS256", "n": base64url.EncodeToString(b.signer.N.Bytes()), "e": "AQAB"},
		"tee-pubkey": key.jwk, "tcb-status": string(status), "evaluation-report": "{}",
	})
	if err != nil {
		return "", err
	}
	token = base64url.EncodeToString([]byte(`{"typ":"JWT","alg":"RS256"}`)) + "." + base64url.EncodeToString(claims)
	signature, err := rsa.SignPKCS1v15(nil, b.signer, crypto.SHA256, digest(crypto.SHA256, []byte(token)))
	return token + "." + base64url.EncodeToString(signature), err
}
