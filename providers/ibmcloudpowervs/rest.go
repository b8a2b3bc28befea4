// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

const (
	// callLimit bounds one request; the API answers creations within seconds.
	callLimit = time.Minute
	// maxReply bounds a list.
	maxReply = 64 << 20
)

// client sends requests to the API of one workspace.
type client struct {
	rest   rest.Client
	tokens *tokens
	cfg    Config
	// A call must not outlive its provider, since the next one could not know what
	// it is still about to make.
	life lifetime.Lifetime
}

func newClient(c Config) (*client, error) {
	transport, err := rest.Transport(c.CAFile)
	if err != nil {
		return nil, bad("powervs-ca-file", "%v", err)
	}
	web := rest.HTTP(transport, callLimit)
	made := &client{tokens: &tokens{http: web, url: c.IAMEndpoint, key: c.APIKey}, cfg: c}
	made.rest = rest.Client{
		HTTP: web, UserAgent: "outrigger/" + version.Version, Pace: poll.Pace{First: 200 * time.Millisecond, Max: 5 * time.Second}, MaxReply: maxReply,
		Authorize: made.authorize, ReadError: readError, Again: retryAfter,
	}
	return made, nil
}

// send sends a request below the workspace.
func (c *client) send(ctx context.Context, method, path string, in, out any) error {
	return c.sendTo(ctx, method, c.path(path), in, out)
}

func (c *client) sendTo(ctx context.Context, method, path string, in, out any) error {
	ctx, done := c.life.Begin(ctx)
	defer done()
	return c.rest.Send(ctx, method, c.cfg.endpoint()+path, in, out)
}

// sendToEnd is sendTo, but only the time limit of a call ends it, not ctx or close.
func (c *client) sendToEnd(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	return c.rest.Send(ctx, method, c.cfg.endpoint()+path, in, out)
}

func (c *client) path(below string) string {
	return "/pcloud/v1/cloud-instances/" + c.cfg.ServiceInstance + below
}

// retryAfter reports whether a request may be sent again: a creation only when the
// cloud has said that it did nothing.
func retryAfter(method string, err error, n int, pause time.Duration) (time.Duration, bool) {
	var refused *failure.Error
	switch {
	case !errors.As(err, &refused):
		return pause, method != http.MethodPost && failure.NoReply(err)
	case refused.Status == http.StatusUnauthorized:
		return pause, n == 1 // with another token
	case refused.Status == http.StatusTooManyRequests:
		return pause, true
	}
	return pause, method != http.MethodPost && refused.Status >= http.StatusInternalServerError
}

func (c *client) authorize(ctx context.Context, request *http.Request) (refused func(), err error) {
	token, err := c.tokens.get(ctx)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token.text)
	request.Header.Set("CRN", c.crn(token.account))
	return func() { c.tokens.forget(token) }, nil
}

// crn names the workspace, as every request has to ("Cloud Resource Name" in
// IBM's documentation).
func (c *client) crn(account string) string {
	return fmt.Sprintf("crn:v1:bluemix:public:power-iaas:%s:a/%s:%s::", c.cfg.Zone, account, c.cfg.ServiceInstance)
}

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
