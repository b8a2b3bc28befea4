// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs all certificates of a cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// PEM is the certificate.
	PEM []byte
}

// newAuthority writes what the control plane reads into dir.
func newAuthority(t testing.TB, dir string, serverNames []string) *authority {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a := &authority{}
	template := newTemplate(pkix.Name{CommonName: "test-cluster-ca"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	var keyPEM []byte
	a.key, keyPEM = newKey(t)
	a.certificate, a.PEM = sign(t, template, template, &a.key.PublicKey, a.key)

	server := newTemplate(pkix.Name{CommonName: "kube-apiserver"})
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range serverNames {
		if ip := net.ParseIP(name); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, name)
		}
	}
	serverCert, serverKey := a.issue(t, server)
	clientCert, clientKey := a.client(t, "kube-apiserver-kubelet-client", "system:masters")
	_, accounts := newKey(t)
	for name, data := range map[string][]byte{
		"ca.crt": a.PEM, "ca.key": keyPEM, "apiserver.crt": serverCert, "apiserver.key": serverKey,
		"kubelet-client.crt": clientCert, "kubelet-client.key": clientKey, "sa.key": accounts,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// client returns certificate and key of a user, in the way Kubernetes reads
// them: the common name is the user, organizations are the groups.
func (a *authority) client(t testing.TB, user string, groups ...string) (cert, key []byte) {
	t.Helper()
	template := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(t, template)
}

func (a *authority) issue(t testing.TB, template *x509.Certificate) (cert, keyPEM []byte) {
	t.Helper()
	key, keyPEM := newKey(t)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	_, cert = sign(t, template, a.certificate, &key.PublicKey, a.key)
	return cert, keyPEM
}

// newTemplate is valid since a day ago: tests may turn a clock back.
func newTemplate(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil { // never, says crypto/rand
		panic(err)
	}
	return &x509.Certificate{
		Subject: subject, SerialNumber: serial,
		NotBefore: time.Now().AddDate(0, 0, -1), NotAfter: time.Now().AddDate(1, 0, 0),
	}
}

func newKey(t testing.TB) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func sign(t testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) (*x509.Certificate, []byte) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
