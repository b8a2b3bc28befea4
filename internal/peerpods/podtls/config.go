// SPDX-License-Identifier: Apache-2.0

package podtls

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ClientOptions describe the node's end.
type ClientOptions struct {
	// ServerName is the name that the VM's certificate must carry.
	ServerName string
	// CAPEM is what the VM's certificate must chain to. Empty: the system's
	// authorities.
	CAPEM []byte
	// CertPEM and KeyPEM prove who we are. Both or neither.
	CertPEM, KeyPEM []byte
	// SkipVerify accepts any server. For debugging only.
	SkipVerify bool
	// MinVersion is tls.VersionTLS12 or above; 0 means tls.VersionTLS12.
	MinVersion uint16
	// CipherSuites is empty for the library's choice, and must be with TLS 1.3.
	CipherSuites []uint16
}

// ServerOptions describe the VM's end.
type ServerOptions struct {
	// CertPEM and KeyPEM are the VM's identity.
	CertPEM, KeyPEM []byte
	// ClientCAPEM is what the node's certificate must chain to, or that
	// certificate itself.
	ClientCAPEM []byte
	// SkipVerify accepts any client. For debugging only.
	SkipVerify bool
	// MinVersion and CipherSuites are as in ClientOptions.
	MinVersion   uint16
	CipherSuites []uint16
}

// ClientConfig builds the TLS settings of the node's end.
func ClientConfig(o ClientOptions) (*tls.Config, error) {
	cfg, err := baseConfig(o.MinVersion, o.CipherSuites)
	if err != nil {
		return nil, err
	}
	if o.ServerName == "" && !o.SkipVerify {
		return nil, errors.New("TLS to a pod VM needs a server name to verify")
	}
	cfg.ServerName = o.ServerName
	cfg.InsecureSkipVerify = o.SkipVerify
	// A resumed session saves the VM two signatures for each new client.
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(2)
	if len(o.CAPEM) > 0 {
		if cfg.RootCAs, _, err = pool(o.CAPEM); err != nil {
			return nil, fmt.Errorf("CA of the pod VM: %w", err)
		}
	}
	if len(o.CertPEM) == 0 && len(o.KeyPEM) == 0 {
		return cfg, nil
	}
	cert, err := tls.X509KeyPair(o.CertPEM, o.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("client certificate and key: %w", err)
	}
	// Sent whatever authorities the VM names: it may know only ours.
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &cert, nil
	}
	return cfg, nil
}

// ServerConfig builds the TLS settings of the VM's end, which requires a
// client certificate and verifies it.
//
// The clock of a VM may be years behind until something sets it. A
// certificate that is not yet valid by that clock is therefore taken as just
// become valid: its issuer is trusted, so it cannot come from the future, and
// the clock must be what is wrong. Expiry is still judged, by the later of the
// clock and the time at which the whole chain became valid.
func ServerConfig(o ServerOptions) (*tls.Config, error) {
	cfg, err := baseConfig(o.MinVersion, o.CipherSuites)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(o.CertPEM, o.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("server certificate and key: %w", err)
	}
	cfg.Certificates = []tls.Certificate{cert}
	if o.SkipVerify {
		return cfg, nil
	}
	if len(o.ClientCAPEM) == 0 {
		return nil, errors.New("no client CA: the VM could not authenticate its node")
	}
	roots, certs, err := pool(o.ClientCAPEM)
	if err != nil {
		return nil, fmt.Errorf("client CA: %w", err)
	}
	// Not RequireAndVerifyClientCert, which cannot look past a wrong clock.
	// VerifyConnection also runs on resumed sessions.
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		return verifyClient(state.PeerCertificates, roots, certs, time.Now())
	}
	return cfg, nil
}

func verifyClient(chain []*x509.Certificate, roots *x509.CertPool, rootCerts []*x509.Certificate, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("the client sent no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	for _, cert := range append(chain[:len(chain):len(chain)], rootCerts...) {
		if now.Before(cert.NotBefore) {
			now = cert.NotBefore
		}
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

func baseConfig(minVersion uint16, suites []uint16) (*tls.Config, error) {
	if minVersion == 0 {
		minVersion = tls.VersionTLS12
	}
	if err := CheckCipherSuites(minVersion, suites); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   minVersion,
		CipherSuites: suites,
		// Frames of up to 4 MiB: full records from the start.
		DynamicRecordSizingDisabled: true,
	}, nil
}

// ParseVersion reads VersionTLS12 or VersionTLS13. Empty means VersionTLS12.
func ParseVersion(name string) (uint16, error) {
	switch name {
	case "", "VersionTLS12":
		return tls.VersionTLS12, nil
	case "VersionTLS13":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("TLS version %q: use VersionTLS12 or VersionTLS13", name)
}

// ParseCipherSuites reads IANA names. Suites that Go's library considers
// insecure are refused.
func ParseCipherSuites(names []string) ([]uint16, error) {
	var ids []uint16
	for _, name := range names {
		name = strings.TrimSpace(name)
		named := func(suite *tls.CipherSuite) bool { return suite.Name == name }
		i := slices.IndexFunc(tls.CipherSuites(), named)
		switch {
		case i >= 0:
			ids = append(ids, tls.CipherSuites()[i].ID)
		case slices.ContainsFunc(tls.InsecureCipherSuites(), named):
			return nil, fmt.Errorf("TLS cipher suite %q is insecure: remove it", name)
		default:
			var known []string
			for _, suite := range tls.CipherSuites() {
				known = append(known, suite.Name)
			}
			return nil, fmt.Errorf("unknown TLS cipher suite %q: known are %s", name, strings.Join(known, ", "))
		}
	}
	return ids, nil
}

// CheckCipherSuites refuses a choice of suites that would have no effect:
// those of TLS 1.3 are fixed.
func CheckCipherSuites(minVersion uint16, suites []uint16) error {
	if minVersion >= tls.VersionTLS13 && len(suites) > 0 {
		return errors.New("TLS cipher suites cannot be chosen with VersionTLS13: leave them out or allow VersionTLS12")
	}
	return nil
}

// pool reads every certificate of a PEM text. One that cannot be read is an error, where
// x509.CertPool would skip it.
func pool(text []byte) (*x509.CertPool, []*x509.Certificate, error) {
	roots := x509.NewCertPool()
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, cert)
		roots.AddCert(cert)
	}
	if len(certs) == 0 {
		return nil, nil, errors.New("no PEM certificate in it")
	}
	return roots, certs, nil
}
