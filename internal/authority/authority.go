// SPDX-License-Identifier: Apache-2.0

// Package authority issues certificates whose authority lasts as long as they do, and whose key nobody keeps.
package authority

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
	"time"
)

// Subject names who a certificate is of, in as many characters as X.509 allows (RFC 5280, ub-common-name: 64).
func Subject(name string) pkix.Name {
	return pkix.Name{Organization: []string{"outrigger"}, CommonName: name[:min(len(name), 64)]}
}

// Server returns what [Authority.Issue] makes a server's certificate of, for names and addresses; the first is its subject.
func Server(hosts ...string) *x509.Certificate {
	of := &x509.Certificate{Subject: Subject(hosts[0]), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			of.IPAddresses = append(of.IPAddresses, ip)
		} else {
			of.DNSNames = append(of.DNSNames, host)
		}
	}
	return of
}

// Authority is a certificate authority whose key is kept nowhere.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority that is valid at these times, as is what it issues.
func New(name string, notBefore, notAfter time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	tmpl := &x509.Certificate{
		Subject: Subject(name), NotBefore: notBefore, NotAfter: notAfter,
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
