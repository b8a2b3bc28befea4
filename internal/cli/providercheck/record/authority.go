// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/tls"
	"net"
	"os"
	"time"

	"github.com/outrigger/outrigger/internal/authority"
)

// newAuthority makes one for the certificates of hosts. It writes its certificate and those that the system trusts to a file.
func newAuthority(file string) (*authority.Authority, error) {
	now := time.Now()
	a, err := authority.New("provider-check --record", now.Add(-time.Hour), now.AddDate(0, 0, 7))
	if err != nil {
		return nil, err
	}
	text := a.PEM()
	for _, system := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"} {
		if more, err := os.ReadFile(system); err == nil {
			text = append(text, more...)
			break
		}
	}
	return a, os.WriteFile(file, text, 0o600)
}

// wrap speaks TLS as the host.
func wrap(a *authority.Authority, conn net.Conn, address string) net.Conn {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, key, err := a.Issue(authority.Server(host))
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		return &pair, err
	}})
}
