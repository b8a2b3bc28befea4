// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/internal/authority"
)

// Keys of the Secret. The first three are those of cert-manager.
const (
	keyCert, keyKey, keyCA             = "tls.crt", "tls.key", "ca.crt"
	keyNextCert, keyNextKey, keyNextCA = "next-tls.crt", "next-tls.key", "next-ca.crt"
	keyPreviousCA                      = "previous-ca.crt"
)

// state is what the Secret holds.
type state struct {
	current, next generation
	// previousCA is still trusted: another replica may not have read the
	// current certificate yet.
	previousCA []byte
}

func readState(data map[string][]byte) state {
	return state{
		current:    generation{data[keyCA], data[keyCert], data[keyKey]},
		next:       generation{data[keyNextCA], data[keyNextCert], data[keyNextKey]},
		previousCA: data[keyPreviousCA],
	}
}

func (s state) data() map[string][]byte {
	all := map[string][]byte{
		keyCert: s.current.cert, keyKey: s.current.key, keyCA: s.current.ca,
		keyNextCert: s.next.cert, keyNextKey: s.next.key, keyNextCA: s.next.ca,
		keyPreviousCA: s.previousCA,
	}
	for key, value := range all {
		if len(value) == 0 {
			delete(all, key)
		}
	}
	return all
}

// bundle returns all CA certificates that the API server must trust.
func (s state) bundle() []byte {
	var all []byte
	for _, ca := range [][]byte{s.previousCA, s.current.ca, s.next.ca} {
		if !bytes.Contains(all, ca) {
			all = append(all, ca...)
		}
	}
	return all
}

// inputs are what the next step of a state depends on.
type inputs struct {
	now       time.Time
	hosts     []string
	published []byte // the bundle that the API server has
	// leads is false in a replica that leaves renewal to another.
	leader bool
}

// step returns the next state and the certificate to serve. The state is the same
// if there is nothing to do.
func (s state) step(in inputs) (state, *tls.Certificate, error) {
	cert, err := s.current.check(in.now, in.hosts)
	switch {
	case err != nil:
		return s.replace(in)
	case !in.leader || !due(in.now, cert):
		return s, cert, nil
	}
	if _, err := s.next.check(in.now, in.hosts); err != nil {
		next, err := issue(in.now, in.hosts)
		return state{current: s.current, next: next}, cert, err
	}
	if bytes.Contains(in.published, s.next.ca) {
		next, err := s.next.check(in.now, in.hosts)
		return state{current: s.next, previousCA: s.current.ca}, next, err
	}
	return s, cert, nil
}

// replace replaces a certificate that is not valid any more at once: there is
// nothing to wait for.
func (s state) replace(in inputs) (state, *tls.Certificate, error) {
	fresh, err := issue(in.now, in.hosts)
	if err != nil {
		return s, nil, err
	}
	cert, err := fresh.check(in.now, in.hosts)
	return state{current: fresh}, cert, err
}

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
	ca, err := authority.New("peerpods-webhook CA", now.Add(-skew), now.Add(lifetime))
	if err != nil {
		return generation{}, err
	}
	cert, key, err := ca.Issue(authority.Server(hosts...))
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
