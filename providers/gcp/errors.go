// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// apiError is a refusal in the form of Google's APIs.
type apiError struct {
	Status  int
	Reason  string // such as quotaExceeded
	Message string
	// after is how long the cloud asks to wait, in seconds; -1 when it does
	// not say.
	after int
	clock string
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (%d %s)%s", strings.TrimSpace(e.Message), e.Status, e.Reason, e.clock)
}

// errorBody is what a refusal carries (page "Compute Engine API errors").
type errorBody struct {
	Error struct {
		Message string `json:"message"`
		Status  string `json:"status"`
		Errors  []struct {
			Reason string `json:"reason"`
		} `json:"errors"`
		Details []struct {
			Reason string `json:"reason"`
		} `json:"details"`
	} `json:"error"`
}

func readError(r *http.Response) *apiError {
	e := &apiError{Status: r.StatusCode, after: retryAfter(r)}
	text, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var body errorBody
	if json.Unmarshal(text, &body) != nil || body.Error.Message == "" {
		e.Message, e.Reason = "no word of Google's", http.StatusText(r.StatusCode)
		return e
	}
	e.Message, e.Reason = body.Error.Message, body.Error.Status
	if len(body.Error.Details) > 0 && body.Error.Details[0].Reason != "" {
		e.Reason = body.Error.Details[0].Reason
	}
	if len(body.Error.Errors) > 0 && body.Error.Errors[0].Reason != "" {
		e.Reason = body.Error.Errors[0].Reason
	}
	if r.StatusCode == http.StatusUnauthorized {
		e.clock = clockHint(r)
	}
	return e
}

// reasons are the classes of the reasons that say more than the status.
var reasons = map[string]error{
	"quotaExceeded":                  provider.ErrQuota,
	"limitExceeded":                  provider.ErrQuota,
	"rateLimitExceeded":              provider.ErrUnavailable,
	"userRateLimitExceeded":          provider.ErrUnavailable,
	"RATE_LIMIT_EXCEEDED":            provider.ErrUnavailable,
	"resourceNotReady":               provider.ErrUnavailable,
	"operationInProgress":            provider.ErrUnavailable,
	"resourceInUseByAnotherResource": provider.ErrUnavailable,
	"insufficientCapacity":           provider.ErrCapacity,
	"resourcesExhausted":             provider.ErrCapacity,
	"alreadyExists":                  provider.ErrAlreadyExists,
	"notFound":                       provider.ErrNotFound,
	"RESOURCE_NOT_FOUND":             provider.ErrNotFound,
}

// statuses are the classes of what the reasons leave open.
var statuses = map[int]error{
	http.StatusBadRequest:            provider.ErrInvalidArgument,
	http.StatusUnauthorized:          provider.ErrUnauthenticated,
	http.StatusForbidden:             provider.ErrPermissionDenied,
	http.StatusNotFound:              provider.ErrNotFound,
	http.StatusConflict:              provider.ErrAlreadyExists,
	http.StatusPreconditionFailed:    provider.ErrInvalidArgument,
	http.StatusRequestEntityTooLarge: provider.ErrInvalidArgument,
	http.StatusTooManyRequests:       provider.ErrUnavailable,
	http.StatusRequestTimeout:        provider.ErrUnavailable,
}

// codes are the classes of the errors of operations (page "Troubleshooting
// resource availability errors" and the API's error codes).
var codes = map[string]error{
	"ZONE_RESOURCE_POOL_EXHAUSTED":              provider.ErrCapacity,
	"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": provider.ErrCapacity,
	"RESOURCE_POOL_EXHAUSTED":                   provider.ErrCapacity,
	"STOCKOUT":                                  provider.ErrCapacity,
	"IP_SPACE_EXHAUSTED":                        provider.ErrCapacity,
	"IP_SPACE_EXHAUSTED_WITH_DETAILS":           provider.ErrCapacity,
	"QUOTA_EXCEEDED":                            provider.ErrQuota,
	"LIMIT_EXCEEDED":                            provider.ErrQuota,
	"RATE_LIMIT_EXCEEDED":                       provider.ErrUnavailable,
	"RESOURCE_OPERATION_RATE_EXCEEDED":          provider.ErrUnavailable,
	"RESOURCE_NOT_READY":                        provider.ErrUnavailable,
	"INTERNAL_ERROR":                            provider.ErrUnavailable,
	"SERVICE_UNAVAILABLE":                       provider.ErrUnavailable,
	"TIMEOUT":                                   provider.ErrUnavailable,
	"PERMISSIONS_ERROR":                         provider.ErrPermissionDenied,
	"FORBIDDEN":                                 provider.ErrPermissionDenied,
	"RESOURCE_NOT_FOUND":                        provider.ErrNotFound,
	"RESOURCE_ALREADY_EXISTS":                   provider.ErrAlreadyExists,
	"UNSUPPORTED_OPERATION":                     provider.ErrInvalidArgument,
	"INVALID_USAGE":                             provider.ErrInvalidArgument,
	"INVALID_FIELD_VALUE":                       provider.ErrInvalidArgument,
	"CONDITION_NOT_MET":                         provider.ErrInvalidArgument,
}

// failure returns the error of an operation that is done; nil if it succeeded.
func (o *operation) failure() error {
	if o.Status != operationDone || o.Error == nil || len(o.Error.Errors) == 0 {
		return nil
	}
	first := o.Error.Errors[0]
	class := codes[first.Code]
	if class == nil {
		class = statusClass(o.HTTPStatus)
	}
	return fmt.Errorf("%w: %s (%s)", class, first.Message, first.Code)
}

func statusClass(status int) error {
	if class := statuses[status]; class != nil {
		return class
	}
	if status >= 500 {
		return provider.ErrUnavailable
	}
	return provider.ErrUnknown
}

// classify gives an error of the API, the connection or the context its class.
// An error that has one keeps it.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	var refused *apiError
	switch {
	case errors.As(err, &refused):
		class := reasons[refused.Reason]
		if class == nil {
			class = statusClass(refused.Status)
		}
		return fmt.Errorf("%w: %w", class, err)
	case rest.NoReply(err):
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return err
}

// isStatus reports whether the cloud has answered with that status.
func isStatus(err error, status int) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.Status == status
}

// isReason reports whether the cloud has answered for that reason.
func isReason(err error, reason string) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.Reason == reason
}
