// SPDX-License-Identifier: Apache-2.0

package keybroker

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"strings"
	"testing"
)

// TestReportData compares with the canonical JSON written out: names in order, no white space, no escapes for HTML.
func TestReportData(t *testing.T) {
	a := Attestation{RuntimeData: RuntimeData{Nonce: `<a"&\+/=`, PubKey: JWK{Alg: KeyAlgorithm, Crv: Curve, Kty: "EC", X: "x-_", Y: "y"}}}
	text := []byte(`{"additional-evidence":"","nonce":"<a\"&\\+/=","tee-pubkey":{"alg":"ECDH-ES+A256KW","crv":"P-256","kty":"EC","x":"x-_","y":"y"}}`)
	want256, want384, want512 := sha256.Sum256(text), sha512.Sum384(text), sha512.Sum512(text)
	for hash, want := range map[string][]byte{"sha256": want256[:], "sha384": want384[:], "sha512": want512[:]} {
		if got, err := a.ReportData(hash); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, %v, want %x", hash, got, err, want)
		}
	}
	if _, err := a.ReportData("md5"); err == nil {
		t.Error("md5 was used")
	}
	a.RuntimeData.Nonce = "\u2028" // Go escapes it, the canonical form does not
	if _, err := a.ReportData("sha384"); err == nil {
		t.Error("a nonce that Go does not write canonically was hashed")
	}
}

func TestResourcePath(t *testing.T) {
	for text, want := range map[string]string{
		"kbs:///default/key/1":                                  "resource/default/key/1",
		"kbs://broker.example:8080/a.b/_c/D-1":                  "resource/a.b/_c/D-1",
		"kbs+pkcs11:///wrap-key":                                "pkcs11/wrap-key",
		"kbs+nebula-ca:///credential?ip=10.0.0.1%2F8&name=pod1": "nebula-ca/credential?ip=10.0.0.1%2F8&name=pod1",
		"": "", "kbs": "", "kbs:///": "", "kbs:///a/b": "", "kbs:///a/b/c/d": "", "kbs:///a/../c": "", "kbs:///a/b/..": "", "kbs:///a/b/.c": "",
		"kbs:///a//c": "", "kbs:///a/b/c/": "", "kbs:///a/b/%2e%2e": "", "kbs:///a%2fb/c": "resource/a/b/c", "kbs:///a/b/c d": "", "kbs:///a/b/ü": "", "kbs:///a/b/c#d": "", "kbs:///a/b/c\n": "",
		"https:///a/b/c": "", "kbs+:///a": "", "kbs+a/b:///c": "", "kbs+../x:///a": "", "kbs://user@host/a/b/c": "",
		"kbs:///a/b/" + strings.Repeat("c", maxURI): "",
	} {
		if path, err := ResourcePath(text); path != want || (err == nil) != (want != "") {
			t.Errorf("%.80q: %q, %v, want %q", text, path, err, want)
		}
	}
}

func FuzzResourceURI(f *testing.F) {
	f.Add("kbs:///default/key/1")
	f.Add("kbs+nebula-ca://h:1/credential?a=b")
	f.Add("kbs:///a/b/%2e%2e")
	f.Fuzz(func(t *testing.T, text string) {
		path, err := ResourcePath(text)
		if err != nil {
			return
		}
		bare, _, _ := strings.Cut(path, "?")
		if strings.Contains("/"+bare+"/", "/../") || strings.Contains(bare, "//") || strings.ContainsAny(path, "\r\n #\\") {
			t.Fatalf("%q leads to %q", text, path)
		}
	})
}
