// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

const (
	// longestRetry bounds what the cloud may ask us to wait.
	longestRetry = 30 * time.Second
	// maxReply bounds a page of a list.
	maxReply = 256 << 20
)

// client sends requests to Google's APIs.
type client struct {
	rest    rest.Client
	tokens  *tokens
	root    string // URL of the Compute Engine API
	compute string // the same up to and with projects/P/
	manager string // URL of the Resource Manager
}

func newClient(c Config) (*client, error) {
	transport, err := rest.Transport(c.CAFile)
	if err != nil {
		return nil, bad("gcp-ca-file", "%v", err)
	}
	made := &client{
		tokens: &tokens{source: c.tokenSource, transport: transport},
		root:   c.Endpoint + "/compute/v1/", compute: c.Endpoint + "/compute/v1/projects/" + c.Project + "/",
		manager: c.ManagerEndpoint + "/v1/projects/" + c.Project,
	}
	made.rest = rest.Client{
		HTTP: rest.HTTP(transport, 0), UserAgent: "outrigger/" + version.Version, Pace: poll.Pace{First: 200 * time.Millisecond, Max: 5 * time.Second}, MaxReply: maxReply,
		Authorize: made.authorize, ReadError: readError, Again: retryPolicy,
	}
	return made, nil
}

func (c *client) close() {
	c.tokens.life.End()
	c.rest.HTTP.CloseIdleConnections()
}

func (c *client) authorize(ctx context.Context, request *http.Request) (refused func(), err error) {
	token, err := c.tokens.get(ctx)
	request.Header.Set("Authorization", "Bearer "+token)
	return func() { c.tokens.forget(token) }, err
}

// send sends a request of the Compute Engine API below the project. Every
// request may be sent again: those that change something have a request id.
func (c *client) send(ctx context.Context, method, path string, query url.Values, in, out any) error {
	target := c.compute + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return c.rest.Send(ctx, method, target, in, out)
}

func (c *client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.send(ctx, http.MethodGet, path, query, nil, out)
}

// retryPolicy reports whether and when to send a request again.
func retryPolicy(_ string, err error, n int, pause time.Duration) (time.Duration, bool) {
	var refused *failure.Error
	switch {
	case !errors.As(err, &refused):
		return pause, failure.NoReply(err) && !failure.Untrusted(err)
	case refused.Status == http.StatusUnauthorized:
		return 0, n == 1 // with another token
	}
	return cmp.Or(refused.After, pause), refused.Status >= 500 || refused.Status == http.StatusTooManyRequests ||
		reasons[refused.Code] == provider.ErrUnavailable && refused.Status == http.StatusForbidden
}
