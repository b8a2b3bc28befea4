// SPDX-License-Identifier: Apache-2.0

// Package failure gives errors of a cloud and of the way to it their classes.
package failure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Error is what a cloud answered in place of doing what it was asked.
type Error struct {
	Status  int    // of HTTP; 0 where there was none
	Code    string // in the cloud's words, such as quotaExceeded
	Message string
	// Class is one of package provider's.
	Class error
	// After is how long the cloud asks to wait; 0 where it does not say.
	After time.Duration
}

// Error implements error.
func (e *Error) Error() string {
	text, reply := e.Message, e.Code
	if e.Status != 0 {
		reply = strings.TrimSpace(fmt.Sprint(e.Status, " ", e.Code))
	}
	if reply != "" {
		text = strings.TrimSpace(text + " (" + reply + ")")
	}
	return fmt.Sprintf("%v: %s", e.Class, text)
}

// Unwrap returns the class.
func (e *Error) Unwrap() error { return e.Class }

// HasStatus reports whether the cloud answered with one of the statuses.
func HasStatus(err error, statuses ...int) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains(statuses, e.Status)
}

// HasCode reports whether the cloud answered with one of the codes.
func HasCode(err error, codes ...string) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

var statuses = map[int]error{
	http.StatusBadRequest:      provider.ErrInvalidArgument,
	http.StatusUnauthorized:    provider.ErrUnauthenticated,
	http.StatusForbidden:       provider.ErrPermissionDenied,
	http.StatusNotFound:        provider.ErrNotFound,
	http.StatusRequestTimeout:  provider.ErrUnavailable,
	http.StatusConflict:        provider.ErrUnavailable, // another change is under way
	http.StatusTooManyRequests: provider.ErrUnavailable,
}

// OfStatus returns the class of an HTTP status; own are those of one cloud, which win.
func OfStatus(status int, own map[int]error) error {
	switch {
	case own[status] != nil:
		return own[status]
	case statuses[status] != nil:
		return statuses[status]
	case status >= http.StatusInternalServerError:
		return provider.ErrUnavailable
	}
	return provider.ErrUnknown
}

// Unsure reports whether a request may have been carried out although it failed.
func Unsure(err error) bool {
	var e *Error
	return errors.Is(err, provider.ErrUnavailable) && (!errors.As(err, &e) || e.Status >= http.StatusInternalServerError)
}

// NoReply reports whether there was no whole answer: the request may have been
// carried out.
func NoReply(err error) bool {
	return errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Untrusted reports whether the server's certificate is not trusted.
func Untrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError))
}

// Classify returns err with the class [provider.ErrUnavailable] if it has none and there was
// no reply, or the context has ended.
func Classify(err error) error {
	return ClassifyBy(err, func(err error) error {
		if NoReply(err) {
			return provider.ErrUnavailable
		}
		return nil
	})
}

// ClassifyBy returns err with the class that classOf returns for it, unless it has one or classOf returns nil.
func ClassifyBy(err error, classOf func(error) error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("%w: %w", class, err)
	}
	return err
}

// Wrap is deferred by a method: it classifies the error that the method returns, if any,
// and puts in front of it what was tried.
func Wrap(err *error, classify func(error) error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf(format+": %w", append(args, classify(*err))...)
	}
}

// Together makes checks at the same time and returns their errors, in the order of the checks.
func Together(checks ...func() error) error {
	errs := make([]error, len(checks))
	var wait sync.WaitGroup
	for i, check := range checks {
		wait.Go(func() { errs[i] = check() })
	}
	wait.Wait()
	return errors.Join(errs...)
}
