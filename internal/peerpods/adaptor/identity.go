// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"

	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
)

// read loads and checks the operator's files.
func (ca *OwnCA) read() (*NodeIdentity, error) {
	var texts [3]string
	for i, path := range []string{ca.CAFile, ca.CertFile, ca.KeyFile} {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts[i] = string(data)
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(texts[0])) {
		return nil, fmt.Errorf("%s holds no PEM certificate", ca.CAFile)
	}
	if _, err := tls.X509KeyPair([]byte(texts[1]), []byte(texts[2])); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", ca.CertFile, ca.KeyFile, err)
	}
	return &NodeIdentity{CA: texts[0], ClientCert: texts[1], ClientKey: texts[2]}, nil
}

// ensureIdentity makes the sandbox's certificates unless it has them, as after
// a restart between CreateVM and StartVM: the VM's key was in memory only.
func (s *Service) ensureIdentity(sb *sandbox) error {
	if s.opts.TLS.Disabled || s.opts.TLS.OwnCA != nil || sb.identity != nil {
		return nil
	}
	id, err := s.opts.TLS.Issue(sb.snapshot().InstanceName, s.opts.Now())
	if err != nil {
		return fmt.Errorf("issue the VM's certificate: %w", err)
	}
	sb.identity = id
	sb.update(func(rec *Record) { rec.TLS = &id.NodeIdentity })
	return nil
}

// serveRequest returns what the relay needs to reach the sandbox's agent.
func (s *Service) serveRequest(rec *Record) (*relaypb.ServeRequest, error) {
	if len(rec.Addresses) == 0 {
		return nil, fmt.Errorf("instance %s has no address", rec.InstanceID)
	}
	req := &relaypb.ServeRequest{
		Id:          rec.ID,
		SocketPath:  s.agentSocket(rec.ID),
		Address:     net.JoinHostPort(rec.Addresses[0].String(), strconv.Itoa(s.opts.ForwarderPort)),
		TimeoutNano: int64(s.opts.ProxyTimeout),
	}
	if s.opts.TLS.Disabled {
		return req, nil
	}
	name, id := rec.InstanceName, rec.TLS
	if s.opts.TLS.OwnCA != nil {
		own, err := s.opts.TLS.OwnCA.read()
		if err != nil {
			return nil, err
		}
		name, id = OwnCAServerName, own
	}
	if id == nil {
		return nil, fmt.Errorf("sandbox %s has no certificates on record: it was started with other TLS options", rec.ID)
	}
	req.Tls = &relaypb.TLS{
		ServerName:   name,
		CaPem:        []byte(id.CA),
		CertPem:      []byte(id.ClientCert),
		KeyPem:       []byte(id.ClientKey),
		SkipVerify:   s.opts.TLS.SkipVerify,
		MinVersion:   s.opts.TLS.MinVersion,
		CipherSuites: s.opts.TLS.CipherSuites,
	}
	return req, nil
}
