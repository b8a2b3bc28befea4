// SPDX-License-Identifier: Apache-2.0

// Package rest sends requests to the REST API of a cloud for which there is no small
// client: with JSON bodies, a token with each request, and retries.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// attempts limits how often a request is sent.
const attempts = 5

// Client sends requests to one API.
type Client struct {
	HTTP *http.Client
	// UserAgent is the header by which the cloud knows the program, such as
	// mycloud-provider/1.2; empty sends none.
	UserAgent string
	// Pace is how the pauses between attempts grow.
	Pace poll.Pace
	// MaxReply bounds a reply, in bytes.
	MaxReply int64
	// Authorize adds the current credentials to a request. It returns a function that, unless it is nil,
	// is called if the cloud refuses them with status 401.
	Authorize func(ctx context.Context, request *http.Request) (refused func(), err error)
	// ReadError returns the error of a reply whose status is 300 or more, with its class.
	ReadError func(*http.Response) error
	// Again reports whether a request may be sent again after its n-th attempt, and
	// after how long; pause is the proposal by Pace.
	Again func(method string, err error, n int, pause time.Duration) (time.Duration, bool)
}

// Send sends in as JSON and decodes the reply into out; either may be nil. Its errors
// have a class.
func (c *Client) Send(ctx context.Context, method, url string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	for n, pause := 1, c.Pace.First; ; n, pause = n+1, min(2*pause, c.Pace.Max) {
		err := c.once(ctx, method, url, body, out)
		if err == nil {
			return nil
		}
		wait, again := c.Again(method, err, n, pause)
		if n >= attempts || !again || poll.Sleep(ctx, jitter(wait)) != nil {
			return failure.Classify(err)
		}
	}
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func (c *Client) once(ctx context.Context, method, url string, body []byte, out any) error {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	refused, err := c.Authorize(ctx, request)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", c.UserAgent)
	request.Header.Set("Accept", "application/json")
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	reply, err := c.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode >= http.StatusMultipleChoices {
		if reply.StatusCode == http.StatusUnauthorized && refused != nil {
			refused()
		}
		return c.ReadError(reply)
	}
	from := io.LimitReader(reply.Body, c.MaxReply)
	if out == nil {
		_, err = io.Copy(io.Discard, from)
		return err
	}
	return Decode(from, out)
}
