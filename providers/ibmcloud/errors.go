// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/go-sdk-core/v5/core"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// ask makes a call of the SDK. Its error is a failure.Error if the VPC API has answered.
func ask[Q, R any](ctx context.Context, call func(context.Context, *Q) (R, *core.DetailedResponse, error), request Q) (R, error) {
	result, reply, err := call(ctx, &request)
	return result, refused(reply, err)
}

// order is ask for calls without a result.
func order[Q any](ctx context.Context, call func(context.Context, *Q) (*core.DetailedResponse, error), request Q) error {
	return refused(call(ctx, &request))
}

func refused(reply *core.DetailedResponse, err error) error {
	if err == nil || reply == nil || reply.StatusCode < 300 {
		return err
	}
	e := &failure.Error{Status: reply.StatusCode, Message: err.Error()}
	result, _ := reply.GetResultAsMap()
	list, _ := result["errors"].([]any)
	if len(list) > 0 {
		first, _ := list[0].(map[string]any)
		e.Code, _ = first["code"].(string)
		e.Message, _ = first["message"].(string)
	}
	e.Class = cmp.Or(codes[e.Code], failure.OfStatus(e.Status, nil))
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

// untrusted is the SDK's error about a certificate without a trusted issuer.
const untrusted = "SSL certificate is not valid"

// classify gives an error of the connection or the context its class. An error that
// has one keeps it.
func classify(err error) error {
	if provider.Class(err) == provider.ErrUnknown && strings.Contains(err.Error(), untrusted) {
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return failure.Classify(err)
}

// explain is deferred by the methods of the contract.
func explain(err *error, format string, args ...any) { failure.Wrap(err, classify, format, args...) }

// failed returns the error of what the cloud gave up, by the first of its reasons.
func failed(code, message *string, classes map[string]error) error {
	if code == nil {
		return fmt.Errorf("%w: it has failed without a reason", provider.ErrUnknown)
	}
	return fmt.Errorf("%w: %s (%s)", cmp.Or(classes[*code], provider.ErrUnknown), value(message), *code)
}

// isTaken reports whether the cloud has refused a second instance of a name.
func isTaken(err error) bool { return errors.Is(err, provider.ErrAlreadyExists) }
