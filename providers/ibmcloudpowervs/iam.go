// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// early is how long before its end a token is renewed.
const early = time.Minute

// iamToken is an access token and whose account it is for.
type iamToken struct {
	text, account string
	until         time.Time
	// refused reports whether the cloud rejects it.
	refused atomic.Bool
}

// tokens gets tokens for the API key ("IAM Identity Services API": Create an
// IAM access token for a user or service ID using an API key).
type tokens struct {
	http *http.Client
	url  string
	key  config.Secret

	turn    chan struct{} // holds the right to read and write current
	current *iamToken
}

// get returns a token that is good for a while.
func (t *tokens) get(ctx context.Context) (*iamToken, error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	if t.current != nil && !t.current.refused.Load() && time.Until(t.current.until) > early {
		return t.current, nil
	}
	fresh, err := t.fetch(ctx)
	if err != nil {
		return nil, fmt.Errorf("get a token for -api-key (IBMCLOUD_API_KEY): %w", err)
	}
	t.current = fresh
	return fresh, nil
}

// forget drops a token that the cloud refused. It waits for nobody, not even
// for who gets a token at this moment.
func (*tokens) forget(refused *iamToken) { refused.refused.Store(true) }

func (t *tokens) fetch(ctx context.Context) (*iamToken, error) {
	form := url.Values{"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "apikey": {string(t.key)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	reply, err := t.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, readIAMError(reply)
	}
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	if err := json.NewDecoder(io.LimitReader(reply.Body, 1<<20)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%w: read the token: %w", provider.ErrUnavailable, err)
	}
	account, err := accountOf(answer.AccessToken)
	if err != nil {
		return nil, err
	}
	return &iamToken{text: answer.AccessToken, account: account, until: time.Now().Add(time.Duration(answer.ExpiresIn) * time.Second)}, nil
}

// readIAMError: a key that is unknown or locked is a bad request.
func readIAMError(reply *http.Response) error {
	refused := readError(reply)
	if reply.StatusCode == http.StatusBadRequest {
		refused.Status = http.StatusUnauthorized
	}
	return refused
}

// accountOf reads the account out of a token's claims. The API checks the
// token; we only address what it is for.
func accountOf(token string) (string, error) {
	parts := strings.Split(token, ".")
	var claims struct {
		Account struct {
			BSS string `json:"bss"`
		} `json:"account"`
	}
	if len(parts) == 3 {
		if text, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			_ = json.Unmarshal(text, &claims) // what cannot be read is not an account
		}
	}
	if claims.Account.BSS == "" {
		return "", fmt.Errorf("%w: the token names no account: it is none of IBM Cloud", provider.ErrUnauthenticated)
	}
	return claims.Account.BSS, nil
}
