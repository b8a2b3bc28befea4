// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/outrigger/outrigger/internal/version"
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

// sendToEnd is send, but only the time limit of a call ends it, not ctx or close.
func (c *client) sendToEnd(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	return c.rest.Send(ctx, method, c.cfg.endpoint()+c.path(path), in, out)
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
