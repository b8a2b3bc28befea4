// SPDX-License-Identifier: Apache-2.0

// Package kbs runs outrigger-kbs, our key broker, for VMs of tests.
package kbs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/stand"
)

// Broker has the resources default/key/1, which is "sesame", and default/key/2, "poppy".
type Broker struct {
	URL string
	// Certificate is whom VMs trust for it, PEM.
	Certificate string

	folder, listen, tpmCA string
}

// Options are what a test changes of a broker that knows the VM image bin/podvm/confidential.
type Options struct {
	Policy     string
	References string // JSON
	Resources  map[string]string
	Sample     bool
}

// New returns a broker that VMs reach at an address of this network namespace. It is not started, but pods can name it. tpmCA is the
// file of who certifies the VMs' TPMs.
func New(t testing.TB, address, tpmCA string) *Broker {
	t.Helper()
	port := freePort(t)
	b := &Broker{folder: stand.Dir(t), URL: "https://" + net.JoinHostPort(address, port), listen: net.JoinHostPort("0.0.0.0", port), tpmCA: tpmCA}
	var key string
	key, b.Certificate = serverCertificate(t, address)
	b.Write(t, "key.pem", key)
	b.Write(t, "cert.pem", b.Certificate)
	b.Write(t, "resources/default/key/1", "sesame")
	b.Write(t, "resources/default/key/2", "poppy")
	return b
}

// Start starts it.
func (b *Broker) Start(t testing.TB, o Options) {
	t.Helper()
	for name, content := range o.Resources {
		b.Write(t, "resources/"+name, content)
	}
	if o.References == "" {
		out, err := exec.Command(stand.Binary(t, "podvm-image"), "measure", "-o", "rvps", filepath.Join(stand.Root(), "bin/podvm/confidential")).Output()
		if err != nil {
			t.Fatalf("podvm-image measure: %v", err)
		}
		o.References = string(out)
	}
	b.Write(t, "references.json", o.References)
	args := []string{
		"serve", "--listen", b.listen, "--tls-cert", b.Path("cert.pem"), "--tls-key", b.Path("key.pem"), "--resources", b.Path("resources"),
		"--reference-values", b.Path("references.json"), "--tpm-ca", b.tpmCA,
	}
	if o.Policy != "" {
		b.Write(t, "policy.rego", o.Policy)
		args = append(args, "--policy", b.Path("policy.rego"))
	}
	if o.Sample {
		args = append(args, "--allow-sample")
	}
	stand.Start(t, stand.Daemon{Path: stand.Binary(t, "outrigger-kbs"), Args: args, Log: b.Path("log")})
	for end := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("tcp", b.listen)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v\n%s", err, b.Log(t))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Path returns that of a file in the broker's folder: resources/REPOSITORY/TYPE/TAG, references.json.
func (b *Broker) Path(name string) string { return filepath.Join(b.folder, name) }

// Write makes or replaces such a file.
func (b *Broker) Write(t testing.TB, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.Path(name)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.Path(name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Log returns what the broker has logged.
func (b *Broker) Log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(b.Path("log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// InitData names the broker, and has more settings of cdh.toml.
func (b *Broker) InitData(t testing.TB, more string) *cloudinit.InitData {
	t.Helper()
	data, err := cloudinit.NewInitData("sha256", "0.1.0", map[string]string{
		"cdh.toml": fmt.Sprintf("[kbc]\nname = \"cc_kbc\"\nurl = %q\nkbs_cert = \"\"\"\n%s\"\"\"\n%s", b.URL, b.Certificate, more),
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Seal makes a sealed Secret that points to a resource. Its key is at the broker.
func (b *Broker) Seal(t testing.TB, resource string) string {
	t.Helper()
	const kid = "default/signing/1"
	if _, err := os.Stat(b.Path("signing.pem")); err != nil {
		b.Write(t, "signing.pem", PrivatePEM(t, NewKey(t)))
		b.Write(t, "resources/"+kid, stand.Run(t, stand.Binary(t, "outrigger-kbs"), "seal", "--key", b.Path("signing.pem"), "--public"))
	}
	return strings.TrimSpace(stand.Run(t, stand.Binary(t, "outrigger-kbs"), "seal", "--key", b.Path("signing.pem"), "--kid", "kbs:///"+kid, resource))
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func serverCertificate(t testing.TB, address string) (keyPEM, certificate string) {
	t.Helper()
	key := NewKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(address)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return PrivatePEM(t, key), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// NewKey returns one of P-256.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// PrivatePEM returns a key as the file that our programs read.
func PrivatePEM(t testing.TB, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
