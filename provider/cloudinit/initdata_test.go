// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sampleTOML = "# kept: the digest is of these bytes\nalgorithm = 'sha384'\nversion = '0.1.0'\n" +
	"[data]\n'policy.rego' = '''\npackage agent_policy\n'''\n"

func TestInitDataForms(t *testing.T) {
	for name, form := range map[string]string{
		"TOML":                     sampleTOML,
		"base64(gzip(TOML))":       pack(t, []byte(sampleTOML)),
		"base64 with a line break": pack(t, []byte(sampleTOML)) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			d, err := DecodeInitData(form)
			if err != nil {
				t.Fatal(err)
			}
			if string(d.TOML()) != sampleTOML {
				t.Errorf("TOML changed: %q", d.TOML())
			}
			if diff := cmp.Diff(map[string]string{"policy.rego": "package agent_policy\n"}, d.Data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if d.Algorithm != "sha384" || d.Version != "0.1.0" {
				t.Errorf("algorithm %q version %q", d.Algorithm, d.Version)
			}
		})
	}
}

// TestInitDataDigest compares with sha256sum, sha384sum and sha512sum.
func TestInitDataDigest(t *testing.T) {
	const text = "algorithm = \"ALG\"\nversion = \"0.1.0\"\n\n[data]\n\"aa.toml\" = \"\"\n"
	for algorithm, want := range map[string]string{
		"sha256": "0a209162d070762caad74cbb48121f194707abb105c2f77950c8ec00b05c37b3",
		"sha384": "3fa6320d55e5c295c266d27837f02f268eeee944dd6cbf735bc12ec7cb23861e17cc7979f0f0eccde4caa698a3ef02d1",
		"sha512": "dfe06949905bf9137a805bce7235d1ef6d4bcdcec7ffa89656a9328fe686bef1b85d75b4bb2197c1d3e03bffbf384085f0d95bebfabd27bf073641d276fad7d5",
	} {
		d, err := DecodeInitData(strings.Replace(text, "ALG", algorithm, 1))
		if err != nil {
			t.Fatal(err)
		}
		if d.Digest() != want {
			t.Errorf("%s: digest %s, want %s", algorithm, d.Digest(), want)
		}
	}
}

func TestInitDataEncodeIsStable(t *testing.T) {
	data := map[string]string{"b.toml": "two\nlines \"\"\"\n", "a.toml": "x", "c": "\t\r\n\u0001"}
	first, err := NewInitData("sha256", "0.1.0", data)
	if err != nil {
		t.Fatal(err)
	}
	one, err := first.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeInitData(one)
	if err != nil {
		t.Fatal(err)
	}
	two, err := again.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if one != two || first.Digest() != again.Digest() {
		t.Errorf("decoding and encoding changed it")
	}
	if diff := cmp.Diff(data, again.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestEmptyInitData(t *testing.T) {
	d := EmptyInitData()
	if d.Algorithm != "sha256" || d.Version != "0.1.0" || !cmp.Equal(d.Data, map[string]string{"aa.toml": ""}) {
		t.Errorf("got %+v", d)
	}
	// sha256sum of the text that upstream's VMs write, which has no newline at its end.
	if got, want := d.Digest(), "adb48cc14fea9403d3d51f3b5f5068fd4d80445a14e94f1b3d5dbabaad66478d"; got != want {
		t.Errorf("digest %s, want upstream's %s", got, want)
	}
}

func TestInitDataRefuses(t *testing.T) {
	packed := pack(t, []byte(sampleTOML))
	for _, tc := range []struct{ name, data, want string }{
		{"empty", "", "algorithm \"\" is none of sha256, sha384, sha512"},
		{"unknown algorithm", "algorithm='md5'\nversion='1'", "md5"},
		{"no version", "algorithm='sha256'", "version is missing"},
		{"no TOML", "algorithm = secret secret", "line 1, column"},
		{"wrong type", "algorithm='sha256'\nversion='1'\n[data]\na=1", "initdata"},
		{"climbing name", "algorithm='sha256'\nversion='1'\n[data]\n'../a'='x'", "not a file name"},
		{"truncated", packed[:len(packed)/2-len(packed)/2%4], "EOF"},
		{"broken base64", packed[:9] + "*" + packed[10:], "neither"},
		{"gzip bomb", pack(t, make([]byte, 64*MaxInitData)), "when unpacked"},
		{"large TOML", "#" + strings.Repeat("x", MaxInitData), "more than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := DecodeInitData(tc.data)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %+v, error %v, want one with %q", d, err, tc.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes the data: %v", err)
			}
		})
	}
}

func pack(t *testing.T, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func FuzzInitData(f *testing.F) {
	f.Add(sampleTOML)
	f.Add("H4sIAAAAAAAAAwMAAAAAAAAAAAA=")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := DecodeInitData(s)
		if err != nil {
			return
		}
		packed, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeInitData(packed)
		if err != nil || again.Digest() != d.Digest() {
			t.Fatalf("round trip: %v", err)
		}
	})
}
