// SPDX-License-Identifier: Apache-2.0

package otherbroker

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newBroker() *Broker {
	return &Broker{AllowSample: true, Resources: map[string][]byte{"default/key/1": []byte("a secret"), "default/key/2": nil}}
}

func TestResourceReachesAttestedClient(t *testing.T) {
	for _, tee := range []string{"sample", "tpm"} {
		for _, alg := range []string{"RSA-OAEP", "RSA-OAEP-256", "ECDH-ES+A256KW"} {
			t.Run(tee+" "+alg, func(t *testing.T) {
				b := newBroker()
				c := newClient(t, b, tee, alg)
				status, answer := c.attest()
				if status != 200 {
					t.Fatal(status, answer)
				}
				verifyToken(t, b, answer["token"].(string))
				byCookie := *c
				byToken := *c
				byToken.cookie, byToken.bearer = "", answer["token"].(string)
				for _, c := range []client{byCookie, byToken} {
					status, jwe := c.do("GET", "/kbs/v0/resource/default/key/1", nil)
					if secret, err := c.open(jwe); status != 200 || err != nil || secret != "a secret" {
						t.Errorf("%d: %q, %v", status, secret, err)
					}
				}
				for _, line := range b.Log() {
					if strings.Contains(line, "deviation") {
						t.Error(line)
					}
				}
			})
		}
	}
}

func verifyToken(t *testing.T, b *Broker, token string) {
	t.Helper()
	parts := strings.Split(token, ".")
	signature, err := base64url.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	signed := []byte(parts[0] + "." + parts[1])
	if err := rsa.VerifyPKCS1v15(&b.signer.PublicKey, crypto.SHA256, digest(crypto.SHA256, signed), signature); err != nil {
		t.Error(err)
	}
}

// The documents leave the hash, what is hashed, and the length to the client.
func TestWhatIsHashedIsRecorded(t *testing.T) {
	reversed := func(sent []byte) []byte { // the same object in another order, with spaces
		var o map[string]json.RawMessage
		_ = json.Unmarshal(sent, &o)
		return []byte(`{ "tee-pubkey": ` + string(o["tee-pubkey"]) + `, "nonce": ` + string(o["nonce"]) + ` }`)
	}
	for _, test := range []struct {
		name, tee  string
		write      func([]byte) []byte
		report     func(sent []byte) []byte
		hash, how  string
		serialised []string
	}{
		{"all the same", "sample", nil, func(s []byte) []byte { return digest(crypto.SHA384, s) }, "sha384", "whole", []string{"compact", "sent", "sorted"}},
		{"as sent", "sample", reversed, func(s []byte) []byte { return digest(crypto.SHA512, reversed(s)) }, "sha512", "whole", []string{"sent"}},
		{"sorted", "tpm", reversed, func(s []byte) []byte { return digest(crypto.SHA384, s)[:32] }, "sha384", "cut to 32", []string{"sorted"}},
		{"compact", "tpm", reversed, func(s []byte) []byte {
			return digest(crypto.SHA256, bytes.ReplaceAll(reversed(s), []byte(" "), nil))
		}, "sha256", "whole", []string{"compact"}},
		{"padded", "sample", nil, func(s []byte) []byte { return append(digest(crypto.SHA256, s), make([]byte, 32)...) }, "sha256", "padded to 64", []string{"compact", "sent", "sorted"}},
		{"with additional evidence", "sample", nil, func(s []byte) []byte {
			return digest(crypto.SHA384, []byte(`{"additional-evidence":"{}",`+string(s[1:])))
		}, "sha384", "whole", []string{"with additional-evidence"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBroker()
			c := newClient(t, b, test.tee, "ECDH-ES+A256KW")
			c.report, c.write = test.report, test.write
			if status, answer := c.attest(); status != 200 {
				t.Fatal(answer)
			}
			if a := b.Attestations()[0]; a.Hash != test.hash || a.ReportData != test.how || !slices.Equal(a.Serialised, test.serialised) {
				t.Errorf("%+v", a)
			}
		})
	}
}

func TestInitDataIsCheckedAgainstPCR8(t *testing.T) {
	toml := "version = \"0.1.0\"\nalgorithm = \"sha384\"\n[data]\nalgorithm = \"sha256\"\n"
	for _, test := range []struct {
		name, format, body string
		hash               crypto.Hash
		status             int
	}{
		{"toml", "toml", toml, crypto.SHA384, 200},
		{"json with the name of IANA", "json", `{"algorithm":"sha-512","version":"0.1.0","data":{}}`, crypto.SHA512, 200},
		{"other hash", "toml", toml, crypto.SHA256, 401},
		{"no algorithm", "toml", "[data]\nalgorithm = \"sha384\"\n", crypto.SHA384, 401},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBroker()
			c := newClient(t, b, "tpm", "ECDH-ES+A256KW")
			c.pcrs[8] = [32]byte(digest(crypto.SHA256, make([]byte, 32), digest(test.hash, []byte(test.body))[:32]))
			c.change = func(o object) { o["init-data"] = object{"format": test.format, "body": test.body} }
			status, answer := c.attest()
			if status != test.status || status == 200 && b.Attestations()[0].InitData != "bound" {
				t.Error(status, answer, b.Attestations())
			}
		})
	}
}

func TestInitDataOfSample(t *testing.T) {
	body := `{"algorithm":"sha256"}`
	sum := base64.StdEncoding.EncodeToString(digest(crypto.SHA256, []byte(body)))
	for claimed, want := range map[string]string{"": "200 unbound", sum: "200 bound", "AAAA": "401 "} {
		b := newBroker()
		c := newClient(t, b, "sample", "ECDH-ES+A256KW")
		c.change = func(o object) {
			o["init-data"] = object{"format": "json", "body": body}
			if claimed != "" {
				evidence(o)["init_data"] = claimed
			}
		}
		status, _ := c.attest()
		got := fmt.Sprint(status, " ")
		for _, a := range b.Attestations() {
			got += a.InitData
		}
		if got != want {
			t.Errorf("init_data %q: %s, not %s", claimed, got, want)
		}
	}
}

// The README has DER in base64 as evidence and PEM in words, and does not say
// what a "TPM signature" is.
func TestKeyAndSignatureOfQuoteInOtherForms(t *testing.T) {
	b := newBroker()
	c := newClient(t, b, "tpm", "ECDH-ES+A256KW")
	c.change = func(o object) {
		c.resign(quote(o), quote(o)["message"].([]byte))
		evidence(o)["ak_public"] = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: evidence(o)["ak_public"].([]byte)}))
	}
	if status, answer := c.attest(); status != 200 || b.Attestations()[0].Signature != "raw" {
		t.Error(status, answer)
	}
}

func evidence(o object) object { return o["tee-evidence"].(object)["primary_evidence"].(object) }
func quote(o object) object    { return evidence(o)["tpm_quote"].(object) }

func TestFalseEvidenceIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		tee, detail string
		change      func(c *client, o object)
	}{
		"nonce":         {"sample", "awaits an answer", func(_ *client, o object) { o["runtime-data"] = object{"nonce": "other"} }},
		"key":           {"sample", "not a hash of the runtime data", func(c *client, o object) { o["runtime-data"] = otherKey(c, o) }},
		"sample report": {"sample", "not a hash", func(_ *client, o object) { evidence(o)["report_data"] = "AAAA" }},
		"signature":     {"tpm", "signature", func(_ *client, o object) { quote(o)["signature"] = make([]byte, 256) }},
		"PCR": {"tpm", "not of these PCRs", func(_ *client, o object) {
			quote(o)["pcrs"].([]string)[3] = strings.Repeat("11", 32)
		}},
		"too few PCRs": {"tpm", "there are 3 values", func(_ *client, o object) { quote(o)["pcrs"] = quote(o)["pcrs"].([]string)[:3] }},
		"message":      {"tpm", "is not a quote", func(c *client, o object) { c.resign(quote(o), []byte("other")) }},
		"short message": {"tpm", "too short or too long", func(c *client, o object) {
			c.resign(quote(o), quote(o)["message"].([]byte)[:100])
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker()
			c := newClient(t, b, test.tee, "ECDH-ES+A256KW")
			c.change = func(o object) { test.change(c, o) }
			if status, answer := c.attest(); status != 401 || !strings.Contains(answer["detail"].(string), test.detail) {
				t.Error(status, answer)
			}
			if status, _ := c.do("GET", "/kbs/v0/resource/default/key/1", nil); status != 401 {
				t.Errorf("a client that is not attested gets %d for a resource", status)
			}
		})
	}
}

func otherKey(c *client, o object) object {
	var runtime object
	_ = json.Unmarshal(o["runtime-data"].(json.RawMessage), &runtime)
	return object{"nonce": runtime["nonce"], "tee-pubkey": newClient(c.t, c.broker, "sample", c.alg).jwk()}
}

func TestUntrustedTPMAndSampleAreRefused(t *testing.T) {
	b := newBroker()
	b.AllowSample = false
	c, other := newClient(t, b, "tpm", "ECDH-ES+A256KW"), newClient(t, b, "tpm", "ECDH-ES+A256KW")
	b.TrustedAKs = []*rsa.PublicKey{&c.ak.PublicKey}
	for _, test := range []struct {
		c      *client
		status int
	}{{c, 200}, {other, 401}, {newClient(t, b, "sample", "ECDH-ES+A256KW"), 401}} {
		if status, answer := test.c.attest(); status != test.status {
			t.Error(status, answer)
		}
	}
}

func TestChallengeIsAnsweredOnceAndSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newBroker(), "sample", "ECDH-ES+A256KW")
		var sent object
		c.change = func(o object) { sent = o }
		if status, answer := c.attest(); status != 200 {
			t.Fatal(answer)
		}
		if status, _ := c.do("POST", "/kbs/v0/attest", sent); status != 401 {
			t.Errorf("the second answer to a challenge gets %d", status)
		}
		for path, want := range map[string]int{"default/key/1": 200, "default/key/2": 403, "default/key/3": 404, "default/key": 404} {
			if status, _ := c.do("GET", "/kbs/v0/resource/"+path, nil); status != want {
				t.Errorf("%s: %d, not %d", path, status, want)
			}
		}
		time.Sleep(validity + 1)
		if status, answer := c.do("GET", "/kbs/v0/resource/default/key/1", nil); status != 401 || !strings.HasSuffix(answer["type"].(string), "/errors/TokenNotFound") {
			t.Error(status, answer)
		}
	})
}

func TestDeviationsAreLogged(t *testing.T) {
	for _, test := range []struct {
		method, path, body string
		want               []string
	}{
		{"POST", "auth", `{ "version": 1, "tee": "x", "extra-params": "" }`, []string{"401", `version does not begin with '"'`, `tee is "x", not one of`, "extra-params does not begin with '{'"}},
		{"POST", "auth", `{"Version": "0.1.1", "tee": "tpm"}`, []string{"200", `"Version" is not in the schema`, "version is missing"}},
		{"POST", "auth", `[]`, []string{"400", "SerdeError"}},
		{"POST", "auth", strings.Repeat(" ", maxBody+1), []string{"400", "more than 1048576 bytes"}},
		{"POST", "attest", `{"init-data":{"format":"yaml"},"runtime-data":{}}`, []string{"401", `init-data.format is "yaml"`, "init-data.body is missing",
			"runtime-data.nonce is missing", "runtime-data.tee-pubkey is missing", "deviation: tee-evidence is missing"}},
		{"POST", "attest", `{"tee-evidence":{"primary_evidence":"{}"}}`, []string{"401", "primary_evidence does not begin with '{'", "additional_evidence is missing"}},
		{"GET", "auth", "", []string{"405", "only POST"}},
		{"POST", "resource/a/b/c", "", []string{"405", "only GET"}},
		{"GET", "other", "", []string{"404"}},
	} {
		b := newBroker()
		b.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(test.method, "/kbs/v0/"+test.path, strings.NewReader(test.body)))
		for _, want := range append(test.want, test.method+` "/kbs/v0/`+test.path+`"`) {
			if line := b.Log()[0]; !strings.Contains(line, want) {
				t.Errorf("%s\nlacks %s", line, want)
			}
		}
	}
}

func TestKeysThatAreNotAsKbsYAMLSays(t *testing.T) {
	for jwk, want := range map[string]string{
		`{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`:         "alg is missing",
		`{"kty":"EC","crv":"P-256K","x":"AA","y":"AA"}`:        "neither RSA",
		`{"kty":"RSA","alg":"RSA-OAEP","n":"AQAB"}`:            "e is missing",
		`{"kty":"RSA","alg":"RSA-OAEP","n":"","e":""}`:         "neither RSA",
		`{"kty":"RSA","alg":"RSA-OAEP","n":"AA==","e":"AQAB"}`: "",
		`{"kty":"oct"}`: "neither RSA",
	} {
		var v visit
		if _, err := v.teeKey([]byte(jwk)); err == nil || !strings.Contains(strings.Join(v.notes, ";"), want) {
			t.Errorf("%s: %v, %q", jwk, err, v.notes)
		}
	}
}

// RFC 7518, appendix C, and RFC 3394, section 4.6.
func TestVectorsOfRFCs(t *testing.T) {
	z := []byte{158, 86, 217, 29, 129, 113, 53, 211, 114, 131, 66, 131, 191, 132, 38, 156, 251, 49, 110, 163, 218, 128, 106, 72, 246, 218, 167, 121, 140, 254, 144, 196}
	kek, _ := hex.DecodeString("000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F")
	key, _ := hex.DecodeString("00112233445566778899AABBCCDDEEFF000102030405060708090A0B0C0D0E0F")
	wrapped, err := wrapAES(kek, key)
	if got := hex.EncodeToString(wrapped); err != nil || got != "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21" {
		t.Error(got, err)
	}
	if got := base64url.EncodeToString(concatKDF(z, "A128GCM", "Alice", "Bob", 16)); got != "VqqN6vgjbSBcIijNcacQGg" {
		t.Error(got)
	}
}
