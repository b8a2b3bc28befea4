// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/IBM/go-sdk-core/v5/core"

	"github.com/outrigger/outrigger/provider"
)

// apiError is a refusal of the VPC API.
type apiError struct {
	Status  int
	Code    string // such as not_found
	Message string
	err     error
}

func (e *apiError) Error() string {
	if e.Code == "" {
		return e.err.Error()
	}
	return fmt.Sprintf("%s (%d %s)", e.Message, e.Status, e.Code)
}

func (e *apiError) Unwrap() error { return e.err }

// refused makes an apiError of what the SDK answers.
func refused(reply *core.DetailedResponse, err error) error {
	if err == nil || reply == nil || reply.StatusCode < 300 {
		return err
	}
	e := &apiError{Status: reply.StatusCode, err: err}
	result, _ := reply.GetResultAsMap()
	list, _ := result["errors"].([]any)
	if len(list) > 0 {
		first, _ := list[0].(map[string]any)
		e.Code, _ = first["code"].(string)
		e.Message, _ = first["message"].(string)
	}
	return e
}

// codes are the classes of the codes that say more than the status (page
// "Error codes" of the VPC documentation).
var codes = map[string]error{
	"not_found":                   provider.ErrNotFound,
	"validation_unique_failed":    provider.ErrAlreadyExists,
	"instance_name_duplicate":     provider.ErrAlreadyExists,
	"over_quota":                  provider.ErrQuota,
	"quota_exceeded":              provider.ErrQuota,
	"instance_quota_exceeded":     provider.ErrQuota,
	"insufficient_capacity":       provider.ErrCapacity,
	"insufficient_zone_capacity":  provider.ErrCapacity,
	"insufficient_free_addresses": provider.ErrCapacity,
	"not_authorized":              provider.ErrPermissionDenied,
	"not_authenticated":           provider.ErrUnauthenticated,
	"rate_limit_exceeded":         provider.ErrUnavailable,
	"instance_invalid_state":      provider.ErrUnavailable,
	"invalid_state":               provider.ErrUnavailable,
	"volume_still_attached":       provider.ErrUnavailable,
	"internal_error":              provider.ErrUnavailable,
}

var statuses = map[int]error{
	http.StatusBadRequest:      provider.ErrInvalidArgument,
	http.StatusUnauthorized:    provider.ErrUnauthenticated,
	http.StatusForbidden:       provider.ErrPermissionDenied,
	http.StatusNotFound:        provider.ErrNotFound,
	http.StatusConflict:        provider.ErrUnavailable,
	http.StatusTooManyRequests: provider.ErrUnavailable,
	http.StatusRequestTimeout:  provider.ErrUnavailable,
}

// reasons are the classes of an instance's status_reasons (constants of
// InstanceStatusReason.Code).
var reasons = map[string]error{
	"cannot_start_capacity":             provider.ErrCapacity,
	"cannot_start_compute":              provider.ErrCapacity,
	"cannot_start_ip_address":           provider.ErrCapacity,
	"cannot_start_placement_group":      provider.ErrCapacity,
	"cannot_start_reservation_capacity": provider.ErrCapacity,
	"cannot_start_network":              provider.ErrUnavailable,
	"cannot_start_storage":              provider.ErrUnavailable,
	"cannot_start_reservation_expired":  provider.ErrInvalidArgument,
	"encryption_key_deleted":            provider.ErrInvalidArgument,
}

// classify gives an error of the API, the connection or the context its class.
// An error that has one keeps it.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	var apiErr *apiError
	var request *url.Error
	var network net.Error
	switch {
	case errors.As(err, &apiErr):
		return fmt.Errorf("%w: %w", apiErr.class(), err)
	case errors.As(err, &request), errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		strings.Contains(err.Error(), untrusted):
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return err
}

func (e *apiError) class() error {
	if class := codes[e.Code]; class != nil {
		return class
	}
	if class := statuses[e.Status]; class != nil {
		return class
	}
	if e.Status >= 500 {
		return provider.ErrUnavailable
	}
	return provider.ErrUnknown
}

// untrusted is the SDK's error about a certificate without a trusted issuer.
const untrusted = "SSL certificate is not valid"

// isStatus reports whether the cloud has answered with that status.
func isStatus(err error, status int) bool {
	var apiErr *apiError
	return errors.As(err, &apiErr) && apiErr.Status == status
}

// isTaken reports whether the cloud has refused a second instance of a name.
func isTaken(err error) bool {
	var apiErr *apiError
	return errors.As(err, &apiErr) && apiErr.class() == provider.ErrAlreadyExists
}

// body is a reply's that ends something when it is closed.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
