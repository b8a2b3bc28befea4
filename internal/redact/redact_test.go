// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"slices"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		`login with password=hunter2 failed`:                          `login with password=[hidden] failed`,
		`with password=x: refused`:                                    `with password=[hidden]: refused`,
		`password: hunter`:                                            `password: [hidden]`,
		`{"user":"x","password":"a b c"}`:                             `{"user":"x","password":[hidden]}`,
		`err="got {\"password\":\"a b c\",\"x\":\"y\"}"`:              `err="got {\"password\":[hidden],\"x\":\"y\"}"`,
		`{"password":"a\"b c","x":"y"}`:                               `{"password":[hidden],"x":"y"}`,
		`cut: {"clientSecret":"a b`:                                   `cut: {"clientSecret":[hidden]`,
		`run --token-file tokenx, --api-password password`:            `run --token-file tokenx, --api-password [hidden]`,
		`LIBVIRT_PASSWORD=x y`:                                        `LIBVIRT_PASSWORD=[hidden] y`,
		`secret-access-key = wJalrXUtnFEMI, region = x`:               `secret-access-key = [hidden], region = x`,
		`clientSecret: "abc"`:                                         `clientSecret: [hidden]`,
		`token=abc&x=1`:                                               `token=[hidden]&x=1`,
		`apiKey=AIzaSyA`:                                              `apiKey=[hidden]`,
		`key=0123456789abcdefghij012`:                                 `key=[hidden]`,
		`GET https://user:p@ss@host/path: 401`:                        `GET https://[hidden]@host/path: 401`,
		`qemu+ssh://root@host/system`:                                 `qemu+ssh://[hidden]@host/system`,
		`Authorization: Bearer abcdefghijklmnop`:                      `Authorization: Bearer [hidden]`,
		`got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.c2ln here`:          `got [hidden] here`,
		`run --api-token abcdefgh --verbose`:                          `run --api-token [hidden] --verbose`,
		`join abcdef.0123456789abcdef now`:                            `join [hidden] now`,
		"x -----BEGIN RSA PRIVATE KEY-----\nabc":                      "x [hidden]",
		"-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----": "[hidden]",
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
