// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

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
	"os"
	"sync"
	"time"

	"github.com/outrigger/outrigger/internal/poll"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
)

const (
	// attempts is how often a request is sent that may be sent again.
	attempts = 5
	// callLimit bounds one request; the API answers creations within seconds.
	callLimit = time.Minute
	// maxReply bounds a list.
	maxReply = 64 << 20
)

// client sends requests to the API of one workspace.
type client struct {
	http   *http.Client
	tokens *tokens
	cfg    Config
	retry  poll.Pace

	mu sync.Mutex
	// epoch ends with close: a call must not outlive its provider, since the
	// next one could not know what it is still about to make.
	epoch context.Context
	end   context.CancelFunc
}

func newClient(c Config) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, bad("powervs-ca-file", "POWERVS_CA_FILE", "%v", err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, bad("powervs-ca-file", "POWERVS_CA_FILE", "%s has no certificate", c.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	// No redirects: a token must not follow one.
	web := &http.Client{
		Transport: transport, Timeout: callLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	made := &client{
		http: web, tokens: &tokens{http: web, url: c.IAMEndpoint, key: c.APIKey, turn: make(chan struct{}, 1)}, cfg: c,
		retry: poll.Pace{First: 200 * time.Millisecond, Max: 5 * time.Second},
	}
	made.epoch, made.end = context.WithCancel(context.Background())
	return made, nil
}

// close ends all calls that go on; later ones are not its concern.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	c.epoch, c.end = context.WithCancel(context.Background())
	c.http.CloseIdleConnections()
}

// bound ends with ctx and with the provider.
func (c *client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	c.mu.Lock()
	epoch := c.epoch
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(epoch, func() { cancel(errors.New("the provider was torn down")) })
	return ctx, func() { stop(); cancel(nil) }
}

// send sends a request below the workspace.
func (c *client) send(ctx context.Context, method, path string, in, out any) error {
	return c.sendTo(ctx, method, c.path(path), in, out)
}

func (c *client) sendTo(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.attempts(ctx, method, path, in, out)
}

// sendToEnd is send that neither ctx nor close ends, but only the limit of a
// call.
func (c *client) sendToEnd(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	return c.attempts(ctx, method, c.path(path), in, out)
}

func (c *client) path(below string) string {
	return "/pcloud/v1/cloud-instances/" + c.cfg.ServiceInstance + below
}

func (c *client) attempts(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	for n, wait := 1, c.retry.First; ; n, wait = n+1, min(2*wait, c.retry.Max) {
		err := c.once(ctx, method, path, body, out)
		if err == nil || n >= attempts || !again(method, err, n) {
			return classify(err)
		}
		if poll.Sleep(ctx, wait/2+rand.N(wait/2+1)) != nil {
			return classify(err)
		}
	}
}

// again says whether a request may be sent once more: a creation only when the
// cloud has said that it did nothing.
func again(method string, err error, n int) bool {
	var refused *apiError
	if !errors.As(err, &refused) {
		return method != http.MethodPost && isUnreachable(err)
	}
	switch {
	case refused.Status == http.StatusUnauthorized:
		return n == 1 // with another token
	case refused.Status == http.StatusTooManyRequests:
		return true
	}
	return method != http.MethodPost && refused.Status >= http.StatusInternalServerError
}

func (c *client) once(ctx context.Context, method, path string, body []byte, out any) error {
	token, err := c.tokens.get(ctx)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.cfg.endpoint()+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	request.Header.Set("Authorization", "Bearer "+token.text)
	request.Header.Set("CRN", c.crn(token.account))
	request.Header.Set("User-Agent", "outrigger/"+version.Version)
	request.Header.Set("Accept", "application/json")
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	reply, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode >= http.StatusMultipleChoices {
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

// crn names the workspace, as every request has to ("Cloud Resource Name" in
// IBM's documentation).
func (c *client) crn(account string) string {
	return fmt.Sprintf("crn:v1:bluemix:public:power-iaas:%s:a/%s:%s::", c.cfg.Zone, account, c.cfg.ServiceInstance)
}
