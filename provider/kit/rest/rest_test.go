// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// serve returns a client of a server that returns the statuses one after the
// other, the last for ever, and counts the requests. Status 0 is not an answer.
func serve(t *testing.T, statuses ...int) (c *Client, url string, asked *int) {
	asked = new(int)
	s := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		status := statuses[min(*asked, len(statuses)-1)]
		*asked++
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		if status == http.StatusFound {
			out.Header().Set("Location", "/elsewhere")
		}
		out.WriteHeader(status)
		fmt.Fprintf(out, `{"token": %q}`, r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	transport, err := Transport(file)
	if err != nil {
		t.Fatal(err)
	}
	token := 1
	return &Client{
		HTTP: HTTP(transport, time.Minute), Pace: poll.Pace{First: time.Millisecond, Max: time.Millisecond}, MaxReply: 1 << 10,
		Authorize: func(_ context.Context, r *http.Request) (func(), error) {
			r.Header.Set("Authorization", fmt.Sprint("token ", token))
			return func() { token++ }, nil
		},
		ReadError: func(r *http.Response) error {
			return &failure.Error{Status: r.StatusCode, Class: provider.ErrUnavailable}
		},
		Again: func(_ string, _ error, _ int, pause time.Duration) (time.Duration, bool) { return pause, true },
	}, s.URL, asked
}

func TestSend(t *testing.T) {
	for name, row := range map[string]struct {
		statuses []int
		asked    int
		token    string // none is an error
	}{
		"at once":          {[]int{200}, 1, "token 1"},
		"with a new token": {[]int{401, 200}, 2, "token 2"},
		"after failures":   {[]int{500, 0, 503, 200}, 4, "token 1"},
		"never":            {[]int{500}, attempts, ""},
		"no redirect":      {[]int{302}, attempts, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, url, asked := serve(t, row.statuses...)
			var answer struct {
				Token string `json:"token"`
			}
			err := c.Send(t.Context(), http.MethodPost, url, map[string]int{"a": 1}, &answer)
			if (err == nil) != (row.token != "") || answer.Token != row.token || *asked != row.asked {
				t.Errorf("%q after %d requests, %v", answer.Token, *asked, err)
			}
			if err != nil && !errors.Is(err, provider.ErrUnavailable) {
				t.Errorf("without its class: %v", err)
			}
		})
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	c, url, _ := serve(t, 500)
	c.Pace = poll.Pace{First: time.Hour, Max: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	again := c.Again
	c.Again = func(method string, err error, n int, pause time.Duration) (time.Duration, bool) {
		cancel()
		return again(method, err, n, pause)
	}
	if err := c.Send(ctx, http.MethodGet, url, nil, nil); !errors.Is(err, provider.ErrUnavailable) {
		t.Error(err)
	}
}

func TestUntrusted(t *testing.T) {
	c, url, _ := serve(t, 200)
	c.HTTP = HTTP(http.DefaultTransport, 0)
	c.Again = func(string, error, int, time.Duration) (time.Duration, bool) { return 0, false }
	if err := c.Send(t.Context(), http.MethodGet, url, nil, nil); !failure.Untrusted(err) || !failure.NoReply(err) {
		t.Error(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, "/does/not/exist"} {
		if _, err := Transport(file); err == nil {
			t.Errorf("%s is taken", file)
		}
	}
}

func TestRootsOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	pool, err := RootsOf(file)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	if _, err := HTTP(transport, time.Minute).Get(s.URL); err != nil {
		t.Error(err)
	}
}

func TestCheckURL(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://api.example": true, "https://api.example/v1": true, "http://api.example": false, "api.example": false, "https://": false,
		"https://me:secret@api.example": false, ":": false, "": false,
	} {
		if err := CheckURL(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-1": 0, "99": time.Minute, "Mon, 02 Jan 2006 15:04:05 GMT": 0} {
		if got := RetryAfter(&http.Response{Header: http.Header{"Retry-After": {text}}}, time.Minute); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestInto decodes in place of an SDK what an SDK has asked for, and no error.
func TestInto(t *testing.T) {
	c, url, _ := serve(t, 500, 200)
	sdk := &http.Client{Transport: Direct{c.HTTP.Transport}}
	defer sdk.CloseIdleConnections()
	type reply struct {
		Token string `json:"token"`
	}
	for n, row := range []struct{ ours, sdks string }{{"", `{"token": "x"}`}, {"x", "{}"}} {
		var got reply
		request, err := http.NewRequestWithContext(Into(t.Context(), &got), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "x")
		answer, err := sdk.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || string(text) != row.sdks || got.Token != row.ours || answer.ContentLength >= 0 && answer.ContentLength != int64(len(text)) {
			t.Errorf("reply %d: ours is %q, the SDK's %q, %v", n, got.Token, text, err)
		}
	}
}

func TestDecode(t *testing.T) {
	type reply struct {
		Names []string       `json:"names"`
		Tags  Raw            `json:"tags"`
		Count map[string]int `json:"count"`
	}
	var got reply
	if err := Decode(strings.NewReader(`{"names":["a"],"tags":{"k":"v"},"else":[{}],"else":1,"Names":["b"]}`), &got); err != nil || len(got.Names) != 1 || got.Names[0] != "a" {
		t.Errorf("%+v: %v", got, err)
	}
	var tags map[string]string
	if err := DecodeRaw(got.Tags, &tags); err != nil || tags["k"] != "v" {
		t.Errorf("%q: %v", tags, err)
	}
	for _, text := range []string{"", "{", `{"names":1}`, `{} {}`, "<html>"} {
		if err := Decode(strings.NewReader(text), &got); !errors.Is(err, provider.ErrUnavailable) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
