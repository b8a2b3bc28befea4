// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// lifetime of a certificate; it is renewed when a third is left.
	lifetime = 90 * 24 * time.Hour
	// skew is how far the clock of a replica or API server may be behind.
	skew = time.Hour
)

// generation is one serving certificate with the authority that signed it, all
// in PEM.
type generation struct{ ca, cert, key []byte }

// issue makes a generation that is valid for the hosts.
func issue(now time.Time, hosts []string) (generation, error) {
	ca, caKey, err := template(now, "peerpods-webhook CA")
	if err != nil {
		return generation{}, err
	}
	ca.IsCA, ca.BasicConstraintsValid, ca.MaxPathLenZero = true, true, true
	ca.KeyUsage = x509.KeyUsageCertSign
	leaf, key, err := template(now, hosts[0])
	if err != nil {
		return generation{}, err
	}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	return sign(ca, caKey, leaf, key)
}

func template(now time.Time, name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	if len(name) > 64 { // the most that X.509 allows (RFC 5280, ub-common-name)
		name = name[:64]
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime),
	}, key, nil
}

func sign(ca *x509.Certificate, caKey *ecdsa.PrivateKey, leaf *x509.Certificate, key *ecdsa.PrivateKey) (generation, error) {
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return generation{}, err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return generation{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return generation{}, err
	}
	return generation{
		ca:   pemBlock("CERTIFICATE", caDER),
		cert: pemBlock("CERTIFICATE", leafDER),
		key:  pemBlock("PRIVATE KEY", keyDER),
	}, nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// check returns the certificate if it serves all hosts now, under its own
// authority.
func (g generation) check(now time.Time, hosts []string) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(g.cert, g.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(g.ca) {
		return nil, fmt.Errorf("the authority's certificate is missing or not PEM")
	}
	for _, host := range hosts {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now}); err != nil {
			return nil, err
		}
	}
	return &pair, nil
}

// due reports whether a certificate is in the last third of its life.
func due(now time.Time, cert *tls.Certificate) bool {
	return now.After(cert.Leaf.NotAfter.Add(-lifetime / 3))
}
