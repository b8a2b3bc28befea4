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
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/cached"
)

// early is how long before its end a token is renewed.
const early = time.Minute

// iamToken is an access token and whose account it is for.
type iamToken struct {
	text, account string
	until         time.Time
}

// tokens gets tokens for the API key ("IAM Identity Services API": Create an
// IAM access token for a user or service ID using an API key).
type tokens struct {
	http    *http.Client
	url     string
	key     config.Secret
	current cached.Values[*iamToken]
}

// get returns a token that is good for a while.
func (t *tokens) get(ctx context.Context) (*iamToken, error) {
	token, err := t.current.Get(ctx, "", func() (*iamToken, time.Time, error) {
		token, err := t.fetch(ctx)
		if err != nil {
			return nil, time.Time{}, err
		}
		return token, token.until.Add(-early), nil
	})
	if err != nil {
		return nil, fmt.Errorf("get a token for -api-key (IBMCLOUD_API_KEY): %w", err)
	}
	return token, nil
}

// forget drops a token that the cloud refused.
func (t *tokens) forget(refused *iamToken) {
	t.current.Forget("", func(current *iamToken) bool { return current == refused })
}

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
	switch reply.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest: // the key is unknown or locked
		return nil, refusal(reply, http.StatusUnauthorized)
	default:
		return nil, readError(reply)
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
