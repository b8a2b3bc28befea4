// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/outrigger/outrigger/internal/poll"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
)

const (
	// attempts is how often a request is sent that may be sent again.
	attempts = 5
	// longestRetry bounds what the cloud may ask us to wait.
	longestRetry = 30 * time.Second
	// maxReply bounds a page of a list.
	maxReply = 256 << 20
)

// client sends requests to Google's APIs.
type client struct {
	http    *http.Client
	tokens  *tokens
	root    string // URL of the Compute Engine API
	compute string // the same up to and with projects/P/
	manager string // URL of the Resource Manager
	project string
	retry   poll.Pace
}

func newClient(c Config) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	if c.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, bad("gcp-ca-file", "%v", err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, bad("gcp-ca-file", "%s has no certificate", c.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	// No redirects: a token must not follow one.
	web := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &client{
		http: web, tokens: &tokens{source: c.tokenSource, transport: transport}, project: c.Project,
		root: c.Endpoint + "/compute/v1/", compute: c.Endpoint + "/compute/v1/projects/" + c.Project + "/",
		manager: c.ManagerEndpoint + "/v1/projects/" + c.Project,
		retry:   poll.Pace{First: 200 * time.Millisecond, Max: 5 * time.Second},
	}, nil
}

func (c *client) close() {
	c.tokens.life.close()
	c.http.CloseIdleConnections()
}

// send sends a request of the Compute Engine API below the project. Every
// request may be sent again: those that change something have a request id.
func (c *client) send(ctx context.Context, method, path string, query url.Values, in, out any) error {
	target := c.compute + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return c.sendTo(ctx, method, target, in, out)
}

func (c *client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.send(ctx, http.MethodGet, path, query, nil, out)
}

func (c *client) sendTo(ctx context.Context, method, target string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	for n, wait := 1, c.retry.First; ; n, wait = n+1, min(2*wait, c.retry.Max) {
		err := c.once(ctx, method, target, body, out)
		if err == nil {
			return nil
		}
		pause, again := c.again(err, n, wait)
		if !again || ctx.Err() != nil {
			return classify(err)
		}
		if poll.Sleep(ctx, pause) != nil {
			return classify(err)
		}
	}
}

// again says whether and when to send a request once more.
func (c *client) again(err error, n int, wait time.Duration) (time.Duration, bool) {
	var refused *apiError
	switch {
	case n >= attempts:
		return 0, false
	case !errors.As(err, &refused):
		return jitter(wait), noReply(err) && !isTLS(err)
	case refused.Status == http.StatusUnauthorized:
		return 0, n == 1 // with another token
	}
	if refused.after >= 0 {
		wait = min(time.Duration(refused.after)*time.Second, longestRetry)
	}
	return jitter(wait), refused.Status >= 500 || refused.Status == http.StatusTooManyRequests ||
		reasons[refused.Reason] == provider.ErrUnavailable && refused.Status == http.StatusForbidden
}

func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func (c *client) once(ctx context.Context, method, target string, body []byte, out any) error {
	token, err := c.tokens.get(ctx)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("User-Agent", "outrigger/"+version.Version)
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	reply, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode >= 300 {
		if reply.StatusCode == http.StatusUnauthorized {
			c.tokens.forget(token)
		}
		return readError(reply)
	}
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(reply.Body, maxReply))
		return err
	}
	if err := json.NewDecoder(io.LimitReader(reply.Body, maxReply)).Decode(out); err != nil {
		return fmt.Errorf("%w: read the reply: %w", provider.ErrUnavailable, err)
	}
	return nil
}

// retryAfter reads the header in its form with seconds.
func retryAfter(r *http.Response) int {
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return -1
	}
	return seconds
}
