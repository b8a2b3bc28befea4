// SPDX-License-Identifier: Apache-2.0

// Package podtls secures the channel between a node and a pod VM: a
// certificate authority for each pod, and the TLS settings of both ends.
package podtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// validity is that of cloud-api-adaptor v0.22.
	validity = 2 * 365 * 24 * time.Hour
	// backdate allows for a verifier whose clock runs behind ours.
	backdate = time.Hour
)

// Bundle is what the two ends of one pod's channel need, as PEM; the keys are
// PKCS#8. Both certificates chain to CAPEM and to nothing else, so the VM of
// one pod can stand in for no other, and only this pod's relay may talk to it.
type Bundle struct {
	CAPEM                       []byte
	ServerCertPEM, ServerKeyPEM []byte // for the VM
	ClientCertPEM, ClientKeyPEM []byte // for the node
}

// NewBundle makes a certificate authority for one pod and lets it sign a
// server certificate whose common name and only alternative name is
// serverName, and a client certificate. The authority's key is forgotten. All
// are valid from one hour before now for two years.
func NewBundle(serverName string, now time.Time) (*Bundle, error) {
	if serverName == "" {
		return nil, errors.New("a pod's certificate needs a server name")
	}
	notBefore := now.Add(-backdate)
	ca, err := NewAuthority("pod authority", notBefore, notBefore.Add(validity))
	if err != nil {
		return nil, err
	}
	b := &Bundle{CAPEM: ca.PEM()}
	b.ServerCertPEM, b.ServerKeyPEM, err = ca.Issue(&x509.Certificate{
		Subject: subject(serverName), DNSNames: []string{serverName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	b.ClientCertPEM, b.ClientKeyPEM, err = ca.Issue(&x509.Certificate{
		Subject: subject("agent-relay"), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return b, err
}

// RenewBefore is how long before its end a certificate is replaced.
const RenewBefore = 30 * 24 * time.Hour

// ValidFor reports whether a PEM certificate is valid now and for that long.
func ValidFor(certificate []byte, now time.Time, long time.Duration) bool {
	_, certs, err := pool(certificate)
	return err == nil && now.After(certs[0].NotBefore) && now.Add(long).Before(certs[0].NotAfter)
}

func subject(name string) pkix.Name {
	return pkix.Name{Organization: []string{"outrigger"}, CommonName: name}
}

// Authority is a certificate authority whose key is kept nowhere.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that is valid at these times, as is what it issues.
func NewAuthority(name string, notBefore, notAfter time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	tmpl := &x509.Certificate{
		Subject: subject(name), NotBefore: notBefore, NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &Authority{cert: tmpl, key: key}
	der, err := a.sign(tmpl, key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("reading the certificate of %q back: %w", name, err)
	}
	return a, nil
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// Issue makes a key and signs a certificate for it, whose names and extended usage are
// those of tmpl. Both are PEM, the key PKCS#8.
func (a *Authority) Issue(tmpl *x509.Certificate) (certificate, key []byte, err error) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	tmpl.NotBefore, tmpl.NotAfter = a.cert.NotBefore, a.cert.NotAfter
	tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, x509.KeyUsageDigitalSignature
	der, err := a.sign(tmpl, priv)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key of %q: %w", tmpl.Subject.CommonName, err)
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", raw), nil
}

func (a *Authority) sign(tmpl *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	tmpl.SerialNumber = serial.Add(serial, big.NewInt(1))
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %q: %w", tmpl.Subject.CommonName, err)
	}
	return der, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
