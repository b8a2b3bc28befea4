// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"
)

// authority signs the certificates of hosts. Its key, and the one of all hosts, are in memory alone.
type authority struct {
	key, hosts *ecdsa.PrivateKey
	cert       *x509.Certificate
}

// newAuthority writes its certificate and those that the system trusts to a file.
func newAuthority(file string) (a *authority, err error) {
	a = &authority{}
	for _, key := range []**ecdsa.PrivateKey{&a.key, &a.hosts} {
		if *key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	of := &x509.Certificate{Subject: pkix.Name{CommonName: "provider-check --record"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := a.sign(of, of, a.key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for _, system := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"} {
		if more, err := os.ReadFile(system); err == nil {
			text = append(text, more...)
			break
		}
	}
	return a, os.WriteFile(file, text, 0o600)
}

func (a *authority) sign(of *x509.Certificate, by *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	of.SerialNumber, of.NotBefore, of.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().AddDate(0, 0, 7)
	return x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, a.key)
}

func (a *authority) leaf(host string) (*tls.Certificate, error) {
	of := &x509.Certificate{Subject: pkix.Name{CommonName: host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature}
	if ip := net.ParseIP(host); ip != nil {
		of.IPAddresses = []net.IP{ip}
	} else {
		of.DNSNames = []string{host}
	}
	der, err := a.sign(of, a.cert, a.hosts)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.hosts}, err
}

// wrap speaks TLS as the host.
func (a *authority) wrap(conn net.Conn, address string) net.Conn {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return a.leaf(host)
	}})
}
