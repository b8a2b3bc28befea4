// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

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

func readError(r *http.Response) error {
	e := &failure.Error{
		Status: r.StatusCode, Code: http.StatusText(r.StatusCode), Message: "no word of Google's", After: rest.RetryAfter(r, longestRetry),
	}
	text, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var body errorBody
	if json.Unmarshal(text, &body) == nil && body.Error.Message != "" {
		e.Message, e.Code = strings.TrimSpace(body.Error.Message), body.Error.Status
		if len(body.Error.Details) > 0 {
			e.Code = cmp.Or(body.Error.Details[0].Reason, e.Code)
		}
		if len(body.Error.Errors) > 0 {
			e.Code = cmp.Or(body.Error.Errors[0].Reason, e.Code)
		}
	}
	if r.StatusCode == http.StatusUnauthorized {
		e.Message += clockHint(r)
	}
	e.Class = cmp.Or(reasons[e.Code], statusClass(e.Status))
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

// statusClass returns the class where the reason leaves it open.
func statusClass(status int) error {
	return failure.OfStatus(status, map[int]error{
		http.StatusConflict:              provider.ErrAlreadyExists,
		http.StatusPreconditionFailed:    provider.ErrInvalidArgument,
		http.StatusRequestEntityTooLarge: provider.ErrInvalidArgument,
	})
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
	"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE":       provider.ErrUnavailable,
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
	return fmt.Errorf("%w: %s (%s)", cmp.Or(codes[first.Code], statusClass(o.HTTPStatus)), first.Message, first.Code)
}

// explain is deferred by the methods of the contract.
func explain(err *error, format string, args ...any) {
	failure.Wrap(err, failure.Classify, format, args...)
}
