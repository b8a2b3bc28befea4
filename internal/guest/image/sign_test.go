// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foxboron/go-uefi/authenticode"

	"github.com/outrigger/outrigger/internal/guest/measure"
)

// keyPair writes a key and its certificate, and returns their paths.
func keyPair(t *testing.T, key crypto.Signer) (keyFile, certFile string) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	keyFile, certFile = filepath.Join(dir, "key.pem"), filepath.Join(dir, "cert.pem")
	for path, block := range map[string]*pem.Block{keyFile: {Type: "PRIVATE KEY", Bytes: der}, certFile: {Type: "CERTIFICATE", Bytes: cert}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return keyFile, certFile
}

func rsaKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestSignatureIsGoodForOthers asks another implementation, and that what firmware measures stays.
func TestSignatureIsGoodForOthers(t *testing.T) {
	sbverify, err := exec.LookPath("sbverify")
	if err != nil {
		t.Skipf("%v: run apt-get install sbsigntool to run this test", err)
	}
	uki, err := buildUKI(sampleStub(1024), []ukiSection{{".linux", bytes.Repeat([]byte("kernel"), 500)}})
	if err != nil {
		t.Fatal(err)
	}
	keyFile, certFile := keyPair(t, rsaKey(t))
	signed, err := signEFI(uki, keyFile, certFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(measured(t, uki), measured(t, signed)) {
		t.Error("the signature changes what firmware measures")
	}
	_, stranger := keyPair(t, rsaKey(t))
	changed := bytes.Clone(signed)
	changed[len(uki)-600] ^= 1
	for name, c := range map[string]struct {
		image []byte
		cert  string
		good  bool
	}{
		"signed": {signed, certFile, true}, "another's certificate": {signed, stranger, false},
		"changed": {changed, certFile, false}, "not signed": {uki, certFile, false},
	} {
		path := filepath.Join(t.TempDir(), "podvm.efi")
		if err := os.WriteFile(path, c.image, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(sbverify, "--cert", c.cert, path).CombinedOutput(); (err == nil) != c.good {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestMeasureNeedsAUnifiedKernelImage(t *testing.T) {
	sections := []ukiSection{{".cmdline", []byte("quiet")}, {".linux", sampleStub(1024)}, {".initrd", []byte("initrd")}}
	uki, err := buildUKI(sampleStub(1024), sections)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := measure.UKI(uki)
	if err != nil {
		t.Fatal(err)
	}
	for n, s := range sections { // each of them counts
		other := slices.Clone(sections)
		other[n].data = append(bytes.Clone(s.data), 0)
		changed, err := buildUKI(sampleStub(1024), other)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := measure.UKI(changed); err != nil || got.PCR11 == expected.PCR11 || got.Disk4 == expected.Disk4 {
			t.Errorf("another %s: %v, %v; before %v", s.name, got, err, expected)
		}
		missing, err := buildUKI(sampleStub(1024), slices.Delete(slices.Clone(sections), n, n+1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := measure.UKI(missing); err == nil || !strings.Contains(err.Error(), s.name) {
			t.Errorf("without %s: %v", s.name, err)
		}
	}
	for size := range len(uki) {
		_, _ = measure.UKI(uki[:size]) // without a panic, whatever was cut off
	}
}

func measured(t *testing.T, efi []byte) []byte {
	t.Helper()
	program, err := authenticode.Parse(bytes.NewReader(efi))
	if err != nil {
		t.Fatal(err)
	}
	return program.Hash(crypto.SHA256)
}

func TestKeysThatCannotSign(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, ecCert := keyPair(t, ec)
	key, _ := keyPair(t, rsaKey(t))
	for name, c := range map[string]struct{ key, cert, want string }{
		"no RSA":         {ecKey, ecCert, "RSA only"},
		"another's":      {key, ecCert, "Secure Boot"},
		"no such key":    {"/nonexistent", ecCert, "/nonexistent"},
		"no certificate": {key, key, "Secure Boot"},
	} {
		if _, err := signEFI(sampleStub(1024), c.key, c.cert); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
