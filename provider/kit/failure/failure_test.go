// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

func TestError(t *testing.T) {
	e := &Error{Status: 403, Code: "quotaExceeded", Message: "too many", Class: provider.ErrQuota}
	err := fmt.Errorf("create: %w", e)
	if !errors.Is(err, provider.ErrQuota) || !HasStatus(err, 404, 403) || HasStatus(err, 404) || !HasCode(err, "a", "quotaExceeded") || HasCode(err, "a") {
		t.Error(err)
	}
	for e, want := range map[*Error]string{
		e: "quota exceeded: too many (403 quotaExceeded)",
		{Code: "Failed", Message: "m", Class: provider.ErrUnknown}: "unknown error: m (Failed)",
		{Status: 500, Class: provider.ErrUnavailable}:              "unavailable: (500)",
		{Message: "m", Class: provider.ErrUnknown}:                 "unknown error: m",
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e, want)
		}
	}
	if HasStatus(errors.New("x"), 0) || HasCode(nil, "") {
		t.Error("what is not an answer has a status")
	}
}

func TestOfStatus(t *testing.T) {
	own := map[int]error{409: provider.ErrAlreadyExists, 503: provider.ErrCapacity}
	for status, want := range map[int]error{
		400: provider.ErrInvalidArgument, 401: provider.ErrUnauthenticated, 403: provider.ErrPermissionDenied, 404: provider.ErrNotFound,
		408: provider.ErrUnavailable, 409: provider.ErrAlreadyExists, 429: provider.ErrUnavailable, 500: provider.ErrUnavailable,
		503: provider.ErrCapacity, 599: provider.ErrUnavailable, 418: provider.ErrUnknown, 0: provider.ErrUnknown,
	} {
		if got := OfStatus(status, own); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
	if got := OfStatus(http.StatusConflict, nil); got != provider.ErrUnavailable {
		t.Errorf("a conflict: %v", got)
	}
}

func TestClassify(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		want   error
		unsure bool
	}{
		"none":            {},
		"a class":         {err: provider.ErrQuota, want: provider.ErrQuota},
		"something":       {err: errors.New("x"), want: provider.ErrUnknown},
		"the context":     {err: fmt.Errorf("wait: %w", context.Canceled), want: provider.ErrUnavailable, unsure: true},
		"too late":        {err: context.DeadlineExceeded, want: provider.ErrUnavailable, unsure: true},
		"net/http":        {err: &url.Error{Op: "Get", URL: "https://x", Err: errors.New("x")}, want: provider.ErrUnavailable, unsure: true},
		"the connection":  {err: &net.OpError{Op: "read", Err: errors.New("x")}, want: provider.ErrUnavailable, unsure: true},
		"half a reply":    {err: io.ErrUnexpectedEOF, want: provider.ErrUnavailable, unsure: true},
		"throttled":       {err: &Error{Status: 429, Class: provider.ErrUnavailable}, want: provider.ErrUnavailable},
		"broken":          {err: &Error{Status: 502, Class: provider.ErrUnavailable}, want: provider.ErrUnavailable, unsure: true},
		"none left there": {err: &Error{Status: 500, Class: provider.ErrCapacity}, want: provider.ErrCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			err := Classify(test.err)
			if provider.Class(err) != test.want || !errors.Is(err, test.err) || Unsure(err) != test.unsure {
				t.Errorf("%v: unsure %t", err, Unsure(err))
			}
		})
	}
}

func TestWrap(t *testing.T) {
	method := func(result error) (err error) {
		defer Wrap(&err, Classify, "get %s of %d", "it", 7)
		return result
	}
	if err := method(nil); err != nil {
		t.Error(err)
	}
	if err := method(io.EOF); err.Error() != "get it of 7: unavailable: EOF" || !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestTogether(t *testing.T) {
	second := make(chan struct{})
	err := Together(
		func() error { <-second; return errors.New("one") },
		func() error { close(second); return nil },
		func() error { return errors.New("three") },
	)
	if err == nil || err.Error() != "one\nthree" || Together() != nil {
		t.Error(err)
	}
}
