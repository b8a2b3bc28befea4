// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestForgetWaitsForNobody: while one caller gets a token from a service that
// does not answer, another says that the last was refused.
func TestForgetWaitsForNobody(t *testing.T) {
	var given atomic.Int64
	asked, hold := make(chan struct{}), make(chan struct{})
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"account":{"bss":"a"}}`))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := given.Add(1)
		if n == 2 {
			close(asked)
			<-hold
		}
		fmt.Fprintf(w, `{"access_token":"%d.%s.x","expires_in":3600}`, n, claims)
	}))
	t.Cleanup(server.Close)
	tokens := &tokens{http: server.Client(), url: server.URL}
	first, err := tokens.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := tokens.get(t.Context()); err != nil || again != first {
		t.Errorf("%v, %v: want the same", again, err)
	}
	tokens.forget(first)
	done := make(chan struct{})
	go func() { // somebody gets a token
		defer close(done)
		_, _ = tokens.get(t.Context()) // and who comes later the same
	}()
	<-asked
	tokens.forget(first)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tokens.get(ctx); err == nil {
		t.Error("a caller that has gone got a token out of its turn")
	}
	close(hold)
	<-done
	if second, err := tokens.get(t.Context()); err != nil || second == first || given.Load() != 2 {
		t.Errorf("%v, %v after %d tokens: want a new one", second, err, given.Load())
	}
}
