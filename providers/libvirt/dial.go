// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/outrigger/outrigger/provider"
)

// dial opens a byte stream to the daemon.
func (t *target) dial(ctx context.Context) (net.Conn, error) {
	var conn net.Conn
	var err error
	switch t.transport {
	case overUnix:
		conn, err = new(net.Dialer).DialContext(ctx, "unix", t.socket)
	case overTCP:
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(t.host, t.port))
	case overTLS:
		conn, err = t.dialTLS(ctx)
	case overSSH:
		conn, err = t.dialSSH(ctx)
	}
	if err != nil {
		return nil, t.dialError(err)
	}
	return conn, nil
}

// dialError gives a class where the cause is plain; a daemon that is not there
// may come back.
func (t *target) dialError(err error) error {
	class := provider.ErrUnavailable
	var unknownHost *net.DNSError
	switch {
	case provider.Class(err) != provider.ErrUnknown:
		return fmt.Errorf("connect to %s: %w", t, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EACCES):
		class = provider.ErrPermissionDenied
	case errors.As(err, &unknownHost) && unknownHost.IsNotFound:
		class = provider.ErrInvalidArgument
	}
	return fmt.Errorf("%w: connect to %s (-uri, LIBVIRT_URI): %w", class, t, err)
}

// The places where libvirt's own client looks (libvirt's tlscerts.html).
const (
	pkiCA   = "/etc/pki/CA/cacert.pem"
	pkiCert = "/etc/pki/libvirt/clientcert.pem"
	pkiKey  = "/etc/pki/libvirt/private/clientkey.pem"
)

func (t *target) dialTLS(ctx context.Context) (net.Conn, error) {
	conf, err := t.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: -libvirt-pki-dir (LIBVIRT_PKI_DIR): %w", provider.ErrUnauthenticated, err)
	}
	conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", net.JoinHostPort(t.host, t.port))
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return nil, fmt.Errorf("%w: %w", provider.ErrUnauthenticated, err)
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// By a byte a daemon says that it accepts the client's certificate; one that does not
	// closes the connection.
	answer := make([]byte, 1)
	if _, err = conn.Read(answer); err == nil && answer[0] == 1 {
		return conn, nil
	}
	conn.Close()
	if err == nil {
		err = fmt.Errorf("it answers %d", answer[0])
	}
	return nil, fmt.Errorf("%w: the daemon does not accept the client's certificate or address: %w", provider.ErrUnauthenticated, err)
}

func (t *target) tlsConfig() (*tls.Config, error) {
	ca, cert, key := pkiCA, pkiCert, pkiKey
	if t.pkiDir != "" {
		ca, cert, key = filepath.Join(t.pkiDir, "cacert.pem"), filepath.Join(t.pkiDir, "clientcert.pem"), filepath.Join(t.pkiDir, "clientkey.pem")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: t.noVerify, ServerName: t.host}
	if t.noVerify {
		return conf, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", ca)
	}
	return conf, nil
}
