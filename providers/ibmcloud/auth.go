// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/IBM/go-sdk-core/v5/core"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
)

// tokenLimit bounds the wait for a token, which no caller's context does.
const tokenLimit = 30 * time.Second

// inner returns the SDK's authenticator: of an explicit kind, never the one
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

// signer puts a token on requests. It stands in the transport and not in the
// SDK's place for it, where an error becomes text and waits for no context.
type signer struct {
	next  http.RoundTripper
	inner core.Authenticator
}

// RoundTrip implements http.RoundTripper.
func (s *signer) RoundTrip(r *http.Request) (*http.Response, error) {
	stamped, err := lifetime.Outlive(r.Context(), func() (*http.Request, error) {
		// Of its own, since the token may come when nobody waits for it any more.
		stamped := &http.Request{Header: http.Header{}}
		return stamped, tokenError(s.inner.Authenticate(stamped))
	})
	if err != nil {
		return nil, &tokenFailure{fmt.Errorf("get a token: %w", err)}
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", stamped.Header.Get("Authorization"))
	return s.next.RoundTrip(r)
}

// tokenFailure is an error that sending the request again does not mend.
type tokenFailure struct{ error }

func (t *tokenFailure) Unwrap() error { return t.error }

// retryPolicy is the SDK's policy, but does not retry if there is no token.
func retryPolicy(ctx context.Context, reply *http.Response, err error) (bool, error) {
	if failure, ok := errors.AsType[*tokenFailure](err); ok {
		return false, failure
	}
	if err == nil && ctx.Err() != nil {
		return false, nil // too late to ask again, and there is a reply
	}
	return core.IBMCloudSDKRetryPolicy(ctx, reply, err)
}

// tokenError gives an error of the token service its class. Whatever the
// service has answered is a refusal of the credentials, unless it is out of
// order.
func tokenError(err error) error {
	if err == nil {
		return nil
	}
	var refused *core.AuthenticationError
	reply := 0
	if errors.As(err, &refused) && refused.Response != nil {
		reply = refused.Response.StatusCode
	}
	class := provider.ErrUnauthenticated
	if reply == 0 || reply >= 500 || reply == http.StatusTooManyRequests {
		class = provider.ErrUnavailable
	}
	// As text: the reply would be taken for one of the VPC API.
	return fmt.Errorf("%w: %v", class, err)
}

// bound ends every request of the token service with the provider.
type bound struct {
	next http.RoundTripper
	life *lifetime.Lifetime
}

func (b *bound) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, done := b.life.Begin(r.Context())
	ctx, cancel := context.WithTimeout(ctx, tokenLimit)
	end := func() { cancel(); done() }
	reply, err := b.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	reply.Body = &body{reply.Body, sync.OnceFunc(end)}
	return reply, nil
}

// body is a reply's that ends something when it is closed.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
