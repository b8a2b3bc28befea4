// SPDX-License-Identifier: Apache-2.0

// Package podtls secures the channel between a node and a pod VM: a
// certificate authority for each pod, and the TLS settings of both ends.
package podtls

import (
	"crypto/x509"
	"errors"
	"time"

	"github.com/outrigger/outrigger/internal/authority"
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
	ca, err := authority.New("pod authority", notBefore, notBefore.Add(validity))
	if err != nil {
		return nil, err
	}
	b := &Bundle{CAPEM: ca.PEM()}
	b.ServerCertPEM, b.ServerKeyPEM, err = ca.Issue(authority.Server(serverName))
	if err != nil {
		return nil, err
	}
	b.ClientCertPEM, b.ClientKeyPEM, err = ca.Issue(&x509.Certificate{
		Subject: authority.Subject("agent-relay"), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
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
