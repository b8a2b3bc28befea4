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
	ca, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	server, serverKey, err := ca.issue(serverName, []string{serverName}, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	client, clientKey, err := ca.issue("agent-relay", nil, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	return &Bundle{
		CAPEM:         certPEM(ca.cert.Raw),
		ServerCertPEM: server, ServerKeyPEM: serverKey,
		ClientCertPEM: client, ClientKeyPEM: clientKey,
	}, nil
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	tmpl, err := template("pod authority", now.Add(-backdate))
	if err != nil {
		return nil, err
	}
	tmpl.IsCA = true
	tmpl.MaxPathLenZero = true
	tmpl.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("signing the pod's authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the pod's authority back: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

func (a *authority) issue(name string, dns []string, usage x509.ExtKeyUsage) (certificate, key []byte, err error) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	tmpl, err := template(name, a.cert.NotBefore)
	if err != nil {
		return nil, nil, err
	}
	tmpl.DNSNames = dns
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &priv.PublicKey, a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %q: %w", name, err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key of %q: %w", name, err)
	}
	return certPEM(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}

func template(name string, notBefore time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber:          serial.Add(serial, big.NewInt(1)),
		Subject:               pkix.Name{Organization: []string{"outrigger"}, CommonName: name},
		NotBefore:             notBefore,
		NotAfter:              notBefore.Add(validity),
		BasicConstraintsValid: true,
	}, nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
