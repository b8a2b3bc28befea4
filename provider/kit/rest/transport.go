// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// CheckURL returns an error for what is not a URL that credentials may be sent to.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return errors.New("it is not an https URL: credentials go there") // which may have a password in it
	case u.User != nil:
		return fmt.Errorf("%q has a user: credentials are settings of their own", u.Redacted())
	}
	return nil
}

// Roots returns the authorities that the system trusts and those in a file.
func Roots(file string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	return with(pool, file)
}

// RootsOf returns the authorities in a file, and no other.
func RootsOf(file string) (*x509.CertPool, error) { return with(x509.NewCertPool(), file) }

func with(pool *x509.CertPool, file string) (*x509.CertPool, error) {
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

// RetryAfter returns how long a reply asks to wait, in the header's form with seconds, and at
// most most; 0 where it does not say.
func RetryAfter(r *http.Response, most time.Duration) time.Duration {
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil {
		return 0
	}
	return min(time.Duration(max(seconds, 0))*time.Second, most)
}
