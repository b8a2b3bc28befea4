// SPDX-License-Identifier: Apache-2.0

package trustbundle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// authority returns a certificate in PEM.
func authority(t *testing.T, name string, expires time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.AddDate(-5, 0, 0), NotAfter: expires,
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestMerge(t *testing.T) {
	valid := now.AddDate(1, 0, 0)
	a, b, old := authority(t, "a", valid), authority(t, "b", valid), authority(t, "old", now.AddDate(0, 0, -1))
	future := authority(t, "future", now.AddDate(10, 0, 0))
	system := "# system\n" + authority(t, "system", valid) + old
	broken := strings.Replace(a, "M", "!", 1)
	key := "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	flipped := corrupted(t, a)
	for name, c := range map[string]struct {
		cloud, proxy string
		want         string
		dropped      []string
	}{
		"cloud, proxy, system":  {a, b, a + "\n" + b + "\n" + system, nil},
		"equal":                 {a, a, a + "\n" + system, nil},
		"equal except for text": {"# cloud\r\n" + strings.ReplaceAll(a, "\n", "\r\n") + "\n\n", a, a + "\n" + system, nil},
		"a part is not equal":   {a, a + b, a + "\n" + a + b + "\n" + system, nil},
		"a comment at the end":  {a + "# end", b + "\n\n", a + "# end\n" + b + "\n\n\n" + system, nil},
		"lines of Windows":      {strings.ReplaceAll(a, "\n", "\r\n"), b, strings.ReplaceAll(a, "\n", "\r\n") + "\n" + b + "\n" + system, nil},
		"BOM":                   {"\ufeff" + a, b, a + "\n" + b + "\n" + system, nil},
		"a bad proxy":           {a, "rubbish", a + "\n" + system, []string{"proxy: there is no certificate in it"}},
		"a bad cloud":           {"", b, b + "\n" + system, []string{"cloud: there is no certificate in it"}},
		"both bad":              {"x", " ", system, []string{"cloud: there is no certificate in it", "proxy: there is no certificate in it"}},
		"expired":               {old + b, b, b + "\n" + system, []string{"cloud: certificate 1 (CN=old) in line 1: it expired on 2026-05-31T00:00:00Z"}},
		"not base64":            {future + "\n# next\n" + broken + b, a, future + b + "\n" + a + "\n" + system, []string{fmt.Sprintf("cloud: certificate 2 in line %d", strings.Count(future, "\n")+3) + ": it is not PEM: its lines are not base64, or BEGIN and END differ"}},
		"broken":                {flipped, b, b + "\n" + system, []string{"cloud: certificate 1 in line 1: it is broken: "}},
		"no END":                {strings.Split(a, "-----END")[0] + b, "x", b + "\n" + system, []string{"cloud: certificate 1 in line 1: its END line is missing", "proxy: there is no certificate in it"}},
		"a key":                 {key + a, b, a + "\n" + b + "\n" + system, []string{`cloud: certificate 1 in line 1: it is not a certificate but a block of type "PRIVATE KEY"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, dropped, err := Merge([]Source{{"cloud", c.cloud}, {"proxy", c.proxy}}, system, now)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if len(dropped) != len(c.dropped) {
				t.Fatalf("dropped %v; want %q", dropped, c.dropped)
			}
			for i, d := range dropped {
				if !strings.HasPrefix(d, c.dropped[i]) {
					t.Errorf("dropped %s; want %s", d, c.dropped[i])
				}
			}
			if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM([]byte(got)) {
				t.Error("Go reads no certificate of it")
			}
		})
	}
}

// corrupted has base64 of something that is not a certificate.
func corrupted(t *testing.T, text string) string {
	t.Helper()
	p, _ := pem.Decode([]byte(text))
	p.Bytes[3]++
	return string(pem.EncodeToMemory(p))
}

// TestRegressionTextAfterTheLastCertificate: a blank line, a comment or a line
// ended as on Windows made the whole bundle go.
func TestRegressionTextAfterTheLastCertificate(t *testing.T) {
	a, system := authority(t, "a", now.AddDate(1, 0, 0)), authority(t, "system", now.AddDate(1, 0, 0))
	for _, tail := range []string{"\n", "\n\n \t\n", "# comment", "# comment\n", "\r\n", "some words\n"} {
		got, dropped, err := Merge([]Source{{"proxy", a + tail}}, system, now)
		if want := a + tail + "\n" + system; err != nil || len(dropped) > 0 || got != want {
			t.Errorf("%q: %v, dropped %v, %s", tail, err, dropped, cmp.Diff(want, got))
		}
	}
}

func TestBlankLinesAndCommentsWithin(t *testing.T) {
	a, system := authority(t, "a", now.AddDate(1, 0, 0)), authority(t, "system", now.AddDate(1, 0, 0))
	lines := strings.SplitAfter(a, "\n")
	odd := lines[0] + "\n# c\n" + strings.Join(lines[1:], " ")
	got, dropped, err := Merge([]Source{{"proxy", odd}}, system, now)
	if err != nil || len(dropped) > 0 {
		t.Errorf("%v, dropped %v", err, dropped)
	}
	if count(got) != 2 {
		t.Errorf("others read %d certificates of\n%s", count(got), got)
	}
}

func TestSystem(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "there is no certificate in it",
		"rubbish":                                "there is no certificate in it",
		"-----BEGIN CERTIFICATE-----\n":          "no certificate in it can be read: its END line is missing",
		corrupted(t, authority(t, "x", now)):     "no certificate in it can be read: it is broken: ",
		strings.Repeat("-----BEGIN X-----\n", 2): "no certificate in it can be read: its END line is missing",
	} {
		if _, _, err := Merge(nil, text, now); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

func FuzzMerge(f *testing.F) {
	f.Add("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		b := read(Source{"x", text}, now)
		if len(b.certificates) == 0 && len(b.dropped) == 0 {
			t.Errorf("%q went without a word", text)
		}
	})
}
