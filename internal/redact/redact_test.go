// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		`login with password=hunter2 failed`:                              `login with password=[hidden] failed`,
		`with password=x: refused`:                                        `with password=[hidden]: refused`,
		`password: hunter`:                                                `password: [hidden]`,
		`{"user":"x","password":"a b c"}`:                                 `{"user":"x","password":[hidden]}`,
		`err="got {\"password\":\"a b c\",\"x\":\"y\"}"`:                  `err="got {\"password\":[hidden],\"x\":\"y\"}"`,
		`{"password":"a\"b c","x":"y"}`:                                   `{"password":[hidden],"x":"y"}`,
		`cut: {"clientSecret":"a b`:                                       `cut: {"clientSecret":[hidden]`,
		`run --token-file tokenx, --api-password password`:                `run --token-file tokenx, --api-password [hidden]`,
		`LIBVIRT_PASSWORD=x y`:                                            `LIBVIRT_PASSWORD=[hidden] y`,
		`secret-access-key = wJalrXUtnFEMI, region = x`:                   `secret-access-key = [hidden], region = x`,
		`clientSecret: "abc"`:                                             `clientSecret: [hidden]`,
		`token=abc&x=1`:                                                   `token=[hidden]&x=1`,
		`apiKey=AIzaSyA`:                                                  `apiKey=[hidden]`,
		`key=0123456789abcdefghij012`:                                     `key=[hidden]`,
		`GET https://user:p@ss@host/path: 401`:                            `GET https://[hidden]@host/path: 401`,
		`qemu+ssh://root@host/system`:                                     `qemu+ssh://[hidden]@host/system`,
		`Authorization: Bearer abcdefghijklmnop`:                          `Authorization: Bearer [hidden]`,
		`got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.c2ln here`:              `got [hidden] here`,
		`run --api-token abcdefgh --verbose`:                              `run --api-token [hidden] --verbose`,
		`join abcdef.0123456789abcdef now`:                                `join [hidden] now`,
		"x -----BEGIN RSA PRIVATE KEY-----\nabc":                          "x [hidden]",
		"-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----":     "[hidden]",
		`{"auths":{"h":{"auth":"dXNlcjpwYXNz"}}}`:                         `{"auths":{"h":{"auth":"[hidden]"}}}`,
		`GET https://a.blob/x?sv=1&sig=abc%2Bdef%3D: 403`:                 `GET https://a.blob/x?sv=1&sig=[hidden] 403`,
		`/?X-Amz-Credential=AKIA/x&X-Amz-Signature=0abc&y=z`:              `/?X-Amz-Credential=[hidden]&X-Amz-Signature=[hidden]&y=z`,
		`clone with ghp_0123456789abcdefghij failed`:                      `clone with [hidden] failed`,
		`[{"name":"DB_PASSWORD","value":"x y"},{"name":"A","value":"b"}]`: `[{"name":"DB_PASSWORD","value":"[hidden]"},{"name":"A","value":"b"}]`,
		`exec: ["mysql","--password","x"]`:                                `exec: ["mysql","--password","[hidden]"]`,
		"log: 0123456789abcdefABCD\nlog: 0123456789abcdefABCD==\nlog: -----END RSA PRIVATE KEY-----": "log: [hidden]",
		"> -----BEGIN EC PRIVATE KEY-----\n> MHcCAQEE\n> -----END EC PRIVATE KEY-----":               "> [hidden]",
		"key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVk=":                                             "key-data: [hidden]",
		"got MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7 from it":                           "got [hidden] from it",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q\nis shown as %q\nwant        %q", text, got, want)
		}
		if once := Text(text); Text(once) != once {
			t.Errorf("%q changes when it is looked at again: %q", once, Text(once))
		}
	}
}

// TestTextStays: what is wrong is still said.
func TestTextStays(t *testing.T) {
	for _, text := range []string{
		`unknown cloud provider "x"`,
		`invalid token: has expired`,
		`failed to get secret: not found`,
		`secrets "libvirt-cloud-credentials" not found`,
		`"Error syncing" key="kube-system/x" err="not found"`,
		`Secret kube-system/x is missing`,
		`basic authentication failed for https://host:5000/v3?mail=a@b`,
		`secretName: vsphere-cloud-credentials`,
		`err="invalid token: has\" expired"`,
		`sha256:f8902e114ef118304e561c3ecd4d0b543adc226b7a07f675f56564185ffe0c07`,
	} {
		if got := Text(text); got != text {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}

func TestFind(t *testing.T) {
	got := Find("password: hunter22\nx: --token abcdefg\n-----BEGIN KEY PRIVATE KEY-----\n0123456789abcdef\nab\n-----END")
	slices.Sort(got)
	if want := "0123456789abcdef abcdefg hunter22"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestKnown(t *testing.T) {
	const secret = "hunter2/ä\"x"
	mask := Known(secret, "short", "")
	for _, form := range []string{
		secret, `hunter2/ä\"x`, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)),
		hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
	} {
		if got := mask("a " + form + " b"); got != "a [hidden] b" {
			t.Errorf("%q is shown as %q", form, got)
		}
	}
	// Within base64 of something longer only what is at its ends can remain.
	for offset := range 4 {
		long := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + secret + "yyy"))
		if got := mask(long); !strings.Contains(got, Hidden) || len(got) > len(Hidden)+offset*2+10 {
			t.Errorf("%q is shown as %q", long, got)
		}
	}
	if got := mask("a short text"); got != "a short text" {
		t.Errorf("what is too short to be looked for is hidden: %q", got)
	}
}

// TestKnownLongestFirst: the end of a secret that begins with another does not remain.
func TestKnownLongestFirst(t *testing.T) {
	if got := Known("hunter", "hunter-and-more")("a hunter-and-more b"); got != "a [hidden] b" {
		t.Errorf("%q", got)
	}
	if got := Known(`a<b&"cd"`)(`{"x":"a<b&\"cd\""}`); got != `{"x":"[hidden]"}` {
		t.Errorf("%q", got)
	}
}
