// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Roots returns the authorities that the system trusts and those in a file.
func Roots(file string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}

// Transport returns a copy of net/http's transport, which also trusts the authorities
// in caFile if that is not empty.
func Transport(caFile string) (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	if caFile == "" {
		return transport, nil
	}
	pool, err := Roots(caFile)
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// HTTP returns a client that follows no redirects: a token must not follow one.
// limit bounds each request, 0 is none.
func HTTP(transport http.RoundTripper, limit time.Duration) *http.Client {
	return &http.Client{
		Transport: transport, Timeout: limit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// NoReply reports whether there was no whole answer: the request may have been
// carried out.
func NoReply(err error) bool {
	var network net.Error // also what net/http wraps errors in
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Untrusted reports whether the server's certificate is not trusted.
func Untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
