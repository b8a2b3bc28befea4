// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TLS is where a client with a certificate reaches the daemon.
type TLS struct {
	// Address is host:port.
	Address string
	// Client holds cacert.pem, clientcert.pem and clientkey.pem, as pkipath
	// wants them. Stranger holds the same names with a certificate of another
	// authority, and the daemon's own cacert.pem.
	Client, Stranger string

	server, host, port string
}

func newTLS(t testing.TB, dir, host string) *TLS {
	t.Helper()
	port := freePort(t, host)
	tls := &TLS{
		Address: net.JoinHostPort(host, port), host: host, port: port,
		server: dir + "/server", Client: dir + "/client", Stranger: dir + "/stranger",
	}
	ca, other := newAuthority(t), newAuthority(t)
	ca.issue(t, tls.server, "server", host, x509.ExtKeyUsageServerAuth)
	ca.issue(t, tls.Client, "client", host, x509.ExtKeyUsageClientAuth)
	other.issue(t, tls.Stranger, "client", host, x509.ExtKeyUsageClientAuth)
	writePEM(t, tls.Stranger+"/cacert.pem", "CERTIFICATE", ca.cert.Raw)
	return tls
}

// conf is the part of libvirtd.conf that makes it listen.
func (tls *TLS) conf() string {
	return fmt.Sprintf(`listen_tls = 1
tls_port = %q
listen_addr = %q
key_file = "%[3]s/serverkey.pem"
cert_file = "%[3]s/servercert.pem"
ca_file = "%[3]s/cacert.pem"
`, tls.port, tls.host, tls.server)
}

// freePort returns a TCP port of the address that nobody has. Nobody else takes
// one in the test's network namespace.
func freePort(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := certificate("libvirtd test authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = sign(t, template, template, a.key, a.key)
	return a
}

// issue writes NAMEcert.pem, NAMEkey.pem and cacert.pem into a new folder.
func (a *authority) issue(t testing.TB, dir, name, host string, use x509.ExtKeyUsage) {
	t.Helper()
	key := newKey(t)
	template := certificate(name)
	// libvirt insists on encipherment for elliptic curves too.
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{use}
	template.IPAddresses, template.DNSNames = []net.IP{net.ParseIP(host)}, []string{"localhost"}
	cert := sign(t, template, a.cert, key, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, name+"cert.pem"), "CERTIFICATE", cert.Raw)
	writePEM(t, filepath.Join(dir, name+"key.pem"), "PRIVATE KEY", der)
	writePEM(t, filepath.Join(dir, "cacert.pem"), "CERTIFICATE", a.cert.Raw)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func sign(t testing.TB, template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
