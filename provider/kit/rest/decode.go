// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/outrigger/outrigger/provider"
)

// lenient takes what encoding/json takes. The package is encoding/json/v2 under the name that it has before
// Go 1.27: it reads a list five times as fast, since it skips members that nobody wants.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// Decode reads all of a reply as JSON into out. Members that out does not have are skipped. The
// names of members have one case. An error is an ErrUnavailable.
func Decode(reply io.Reader, out any) error {
	if err := json.UnmarshalRead(reply, out, lenient); err != nil {
		return fmt.Errorf("%w: read the reply: %w", provider.ErrUnavailable, err)
	}
	return nil
}

// Raw is a part of a reply that is only decoded where it is wanted.
type Raw = jsontext.Value

// DecodeRaw is Decode for a part of a reply; out stays as it is for one that is missing.
func DecodeRaw(part Raw, out any) error {
	if len(part) == 0 {
		return nil
	}
	if err := json.Unmarshal(part, out, lenient); err != nil {
		return fmt.Errorf("%w: read the reply: %w", provider.ErrUnavailable, err)
	}
	return nil
}

type readKey struct{}

// Into returns a context for one call of an SDK whose requests go through [Direct]. What the cloud replies with
// success (status 2xx) is decoded into out, and the SDK gets an empty object: it would decode all members, two or three times.
// The call must not make requests besides its own under that context, such as for credentials.
func Into[T any](ctx context.Context, out *T) context.Context {
	return context.WithValue(ctx, readKey{}, func(reply io.Reader) error {
		var fresh T // nothing of an attempt that failed
		err := Decode(reply, &fresh)
		*out = fresh
		return err
	})
}

// Direct is a transport for [Into].
type Direct struct{ http.RoundTripper }

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (d Direct) CloseIdleConnections() {
	if next, ok := d.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (d Direct) RoundTrip(request *http.Request) (*http.Response, error) {
	reply, err := d.RoundTripper.RoundTrip(request)
	read, ok := request.Context().Value(readKey{}).(func(io.Reader) error)
	if err != nil || !ok || reply.StatusCode/100 != 2 {
		return reply, err
	}
	defer reply.Body.Close()
	if err := read(reply.Body); err != nil {
		return nil, err
	}
	const nothing = "{}"
	reply.Body, reply.ContentLength = io.NopCloser(strings.NewReader(nothing)), int64(len(nothing))
	reply.Header.Del("Content-Length")
	return reply, nil
}
