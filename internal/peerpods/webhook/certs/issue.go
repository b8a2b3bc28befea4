// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podtls"
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
	ca, err := podtls.NewAuthority("peerpods-webhook CA", now.Add(-skew), now.Add(lifetime))
	if err != nil {
		return generation{}, err
	}
	// 64 is the most that X.509 allows (RFC 5280, ub-common-name).
	leaf := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0][:min(len(hosts[0]), 64)]},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	cert, key, err := ca.Issue(leaf)
	return generation{ca.PEM(), cert, key}, err
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
