// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/go-sdk-core/v5/core"

	"github.com/outrigger/outrigger/provider"
)

// tokenLimit bounds the wait for a token, which no caller's context does.
const tokenLimit = 30 * time.Second

// transport trusts what the operator trusts.
func (c Config) transport() (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	if c.CAFile == "" {
		return transport, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	text, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, bad("ibmcloud-ca-file", "%v", err)
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, bad("ibmcloud-ca-file", "%s has no certificate", c.CAFile)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// inner answers the SDK's authenticator: of an explicit kind, never the one
// that the environment suggests.
func (c Config) inner(client *http.Client) (core.Authenticator, error) {
	base := strings.TrimSuffix(strings.TrimSuffix(c.IAM, "/"), "/identity/token")
	if c.APIKey != "" {
		a := &core.IamAuthenticator{ApiKey: c.APIKey.Reveal(), URL: base, Client: client}
		return a, a.Validate()
	}
	a := &core.ContainerAuthenticator{IAMProfileID: c.ProfileID, CRTokenFilename: c.TokenFile, URL: base, Client: client}
	return a, a.Validate()
}

// authenticator adds to the SDK's that it gives up with the request's context.
type authenticator struct {
	core.Authenticator
	life *lifetime
}

// Authenticate implements core.Authenticator.
func (a *authenticator) Authenticate(r *http.Request) error {
	// A copy, since the token may come when nobody waits for it any more.
	stamped := &http.Request{Header: http.Header{}}
	done := make(chan error, 1)
	go func() { done <- a.Authenticator.Authenticate(stamped) }()
	var err error
	select {
	case err = <-done:
	case <-r.Context().Done():
		return fmt.Errorf("%w: get a token: %w", provider.ErrUnavailable, context.Cause(r.Context()))
	case <-a.life.current().Done():
		return fmt.Errorf("%w: get a token: the provider is closed", provider.ErrUnavailable)
	}
	if err != nil {
		return tokenError(err)
	}
	r.Header.Set("Authorization", stamped.Header.Get("Authorization"))
	return nil
}

// tokenError gives an error of the token service its class. Whatever the
// service has answered is a refusal of the credentials, unless it is out of
// order.
func tokenError(err error) error {
	var refused *core.AuthenticationError
	reply := 0
	if errors.As(err, &refused) && refused.Response != nil {
		reply = refused.Response.StatusCode
	}
	class := provider.ErrUnauthenticated
	if reply == 0 || reply >= 500 || reply == http.StatusTooManyRequests {
		class = provider.ErrUnavailable
	}
	return fmt.Errorf("get a token: %w: %w", class, err)
}

// bound ends every request of the token service with the provider.
type bound struct {
	next http.RoundTripper
	life *lifetime
}

func (b *bound) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), tokenLimit)
	stop := context.AfterFunc(b.life.current(), cancel)
	reply, err := b.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	reply.Body = &body{reply.Body, func() { stop(); cancel() }}
	return reply, nil
}

// lifetime ends what is under way when the provider is closed. What is asked
// after that begins another.
type lifetime struct {
	mu  sync.Mutex
	ctx context.Context
	end context.CancelFunc
}

func (l *lifetime) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.end = context.WithCancel(context.Background())
	}
	return l.ctx
}

func (l *lifetime) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx != nil {
		l.end()
		l.ctx = nil
	}
}
