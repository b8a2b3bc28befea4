// SPDX-License-Identifier: Apache-2.0

package otherbroker

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// object is JSON that a test may make wrong where it likes.
type object = map[string]any

// client is a guest with a TEE that the test makes up.
type client struct {
	t              *testing.T
	broker         *Broker
	tee            string
	cookie, bearer string
	rsa            *rsa.PrivateKey // the tee-pubkey is rsa's, or else ec's
	ec             *ecdh.PrivateKey
	alg            string
	ak             *rsa.PrivateKey // of the TPM
	pcrs           [24][32]byte
	report         func(runtime []byte) []byte // from runtime data as it is sent
	change         func(attestation object)    // before it is sent
	write          func(runtime []byte) []byte // writes runtime data otherwise; nil: sorted and compact
}

func newClient(t *testing.T, b *Broker, tee, alg string) *client {
	t.Helper()
	c := &client{t: t, broker: b, tee: tee, alg: alg, change: func(object) {}}
	c.report = func(runtime []byte) []byte { return digest(crypto.SHA384, runtime) }
	var err, errAK error
	if alg == "ECDH-ES+A256KW" {
		c.ec, err = ecdh.P256().GenerateKey(rand.Reader)
	} else {
		c.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if tee == "tpm" {
		c.report = func(runtime []byte) []byte { return digest(crypto.SHA384, runtime)[:32] }
		c.ak, errAK = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil || errAK != nil {
		t.Fatal(err, errAK)
	}
	return c
}

// do sends one request and returns the status and the JSON of the answer.
func (c *client) do(method, path string, body any) (int, object) {
	c.t.Helper()
	content, written := body.([]byte)
	if body != nil && !written {
		content, _ = json.Marshal(body)
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(content))
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.cookie != "" {
		r.AddCookie(&http.Cookie{Name: "kbs-session-id", Value: c.cookie})
	}
	if c.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	w := httptest.NewRecorder()
	c.broker.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		c.cookie = cookie.Value
	}
	var answer object
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return w.Code, answer
}

// attest goes from the Request to the token.
func (c *client) attest() (int, object) {
	c.t.Helper()
	status, challenge := c.do("POST", "/kbs/v0/auth", object{"version": "0.1.1", "tee": c.tee, "extra-params": object{}})
	if status != 200 {
		return status, challenge
	}
	runtime := object{"nonce": challenge["nonce"], "tee-pubkey": c.jwk()}
	sent, _ := json.Marshal(runtime)
	report := c.report(sent)
	evidence := object{"svn": "1", "report_data": base64.StdEncoding.EncodeToString(report)}
	if c.tee == "tpm" {
		evidence = c.quote(report)
	}
	body := object{"runtime-data": json.RawMessage(sent), "tee-evidence": object{"primary_evidence": evidence, "additional_evidence": "{}"}}
	c.change(body)
	content, _ := json.Marshal(body)
	if c.write != nil {
		content = bytes.Replace(content, sent, c.write(sent), 1)
	}
	return c.do("POST", "/kbs/v0/attest", content)
}

func (c *client) jwk() object {
	if c.rsa != nil {
		return object{"kty": "RSA", "alg": c.alg, "n": base64url.EncodeToString(c.rsa.N.Bytes()), "e": "AQAB"}
	}
	point := c.ec.PublicKey().Bytes()[1:]
	return object{"kty": "EC", "crv": "P-256", "alg": c.alg,
		"x": base64url.EncodeToString(point[:32]), "y": base64url.EncodeToString(point[32:])}
}

// quote is a TPM2_Quote over all PCRs, as the TPM 2.0 Library, part 2, has TPMS_ATTEST.
func (c *client) quote(extra []byte) object {
	var all []byte
	var values []string
	for _, pcr := range c.pcrs {
		all, values = append(all, pcr[:]...), append(values, hex.EncodeToString(pcr[:]))
	}
	m := binary.BigEndian.AppendUint32(nil, 0xff544347)
	m = append(m, 0x80, 0x18, 0, 2, 0xaa, 0xbb) // and a qualifiedSigner
	m = append(binary.BigEndian.AppendUint16(m, uint16(len(extra))), extra...)
	m = append(m, make([]byte, 25)...)
	m = append(m, 0, 0, 0, 1, 0, 0x0b, 3, 0xff, 0xff, 0xff, 0, 32)
	m = append(m, digest(crypto.SHA256, all)...)
	signature, err := rsa.SignPKCS1v15(nil, c.ak, crypto.SHA256, digest(crypto.SHA256, m))
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&c.ak.PublicKey)
	if err != nil {
		c.t.Fatal(err)
	}
	return object{"ak_public": der, "tpm_quote": object{"message": m, "pcrs": values,
		"signature": append([]byte{0, 0x14, 0, 0x0b, 1, 0}, signature...)}}
}

// resign makes a quote of another message.
func (c *client) resign(quote object, message []byte) {
	signature, err := rsa.SignPKCS1v15(nil, c.ak, crypto.SHA256, digest(crypto.SHA256, message))
	if err != nil {
		c.t.Fatal(err)
	}
	quote["message"], quote["signature"] = message, signature
}

// open decrypts a resource by RFC 7516, section 5.2.
func (c *client) open(jwe object) (string, error) {
	part := func(name string) []byte {
		s, _ := jwe[name].(string)
		decoded, _ := base64url.DecodeString(s)
		return decoded
	}
	var header struct {
		Alg, Enc string
		Epk      struct{ X, Y string }
	}
	if err := json.Unmarshal(part("protected"), &header); err != nil || header.Alg != c.alg || header.Enc != "A256GCM" {
		return "", fmt.Errorf("header %+v: %v", header, err)
	}
	key, err := c.unwrap(header.Epk.X, header.Epk.Y, part("encrypted_key"))
	if err != nil {
		return "", err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return "", err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return "", err
	}
	plain, err := gcm.Open(nil, part("iv"), append(part("ciphertext"), part("tag")...), []byte(jwe["protected"].(string)))
	return string(plain), err
}

func (c *client) unwrap(x, y string, wrapped []byte) ([]byte, error) {
	switch c.alg {
	case "RSA-OAEP":
		return rsa.DecryptOAEP(sha1.New(), nil, c.rsa, wrapped, nil)
	case "RSA-OAEP-256":
		return rsa.DecryptOAEP(sha256.New(), nil, c.rsa, wrapped, nil)
	}
	bx, _ := base64url.DecodeString(x)
	by, _ := base64url.DecodeString(y)
	ephemeral, err := ecdh.P256().NewPublicKey(append(append([]byte{4}, bx...), by...))
	if err != nil {
		return nil, err
	}
	shared, err := c.ec.ECDH(ephemeral)
	if err != nil {
		return nil, err
	}
	return unwrapAES(concatKDF(shared, c.alg, "", "", 32), wrapped)
}

// unwrapAES is RFC 3394, section 2.2.2.
func unwrapAES(kek, wrapped []byte) ([]byte, error) {
	block, err := aes.NewCipher(kek)
	if err != nil {
		return nil, err
	}
	a, r, n := binary.BigEndian.Uint64(wrapped), wrapped[8:], len(wrapped)/8-1
	buffer := make([]byte, 16)
	for j := 5; j >= 0; j-- {
		for i := n; i >= 1; i-- {
			binary.BigEndian.PutUint64(buffer, a^uint64(n*j+i))
			copy(buffer[8:], r[8*(i-1):8*i])
			block.Decrypt(buffer, buffer)
			a = binary.BigEndian.Uint64(buffer)
			copy(r[8*(i-1):], buffer[8:])
		}
	}
	if a != 0xa6a6a6a6a6a6a6a6 {
		return nil, fmt.Errorf("the integrity check of RFC 3394 fails")
	}
	return r, nil
}
