// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// classes are the classes of EC2's and STS' error codes (EC2 API reference,
// "Error codes"; STS API reference, "Common errors"). What is not here is
// classified by its form, see classOf.
var classes = map[string]error{
	"InsufficientInstanceCapacity":         provider.ErrCapacity,
	"InsufficientCapacity":                 provider.ErrCapacity,
	"InsufficientHostCapacity":             provider.ErrCapacity,
	"InsufficientReservedInstanceCapacity": provider.ErrCapacity,
	"InsufficientVolumeCapacity":           provider.ErrCapacity,
	"InsufficientAddressCapacity":          provider.ErrCapacity,
	"InsufficientFreeAddressesInSubnet":    provider.ErrCapacity,
	"UnfulfillableCapacity":                provider.ErrCapacity,
	"SpotMaxPriceTooLow":                   provider.ErrCapacity,

	"VcpuLimitExceeded":             provider.ErrQuota,
	"InstanceLimitExceeded":         provider.ErrQuota,
	"MaxSpotInstanceCountExceeded":  provider.ErrQuota,
	"AddressLimitExceeded":          provider.ErrQuota,
	"VolumeLimitExceeded":           provider.ErrQuota,
	"MaxIOPSLimitExceeded":          provider.ErrQuota,
	"NetworkInterfaceLimitExceeded": provider.ErrQuota,
	"TagLimitExceeded":              provider.ErrInvalidArgument,
	"PrivateIpAddressLimitExceeded": provider.ErrQuota,
	"AttachmentLimitExceeded":       provider.ErrInvalidArgument,

	"AuthFailure":                  provider.ErrUnauthenticated,
	"SignatureDoesNotMatch":        provider.ErrUnauthenticated,
	"InvalidClientTokenId":         provider.ErrUnauthenticated,
	"UnrecognizedClientException":  provider.ErrUnauthenticated,
	"MissingAuthenticationToken":   provider.ErrUnauthenticated,
	"IncompleteSignature":          provider.ErrUnauthenticated,
	"ExpiredToken":                 provider.ErrUnauthenticated,
	"ExpiredTokenException":        provider.ErrUnauthenticated,
	"RequestExpired":               provider.ErrUnauthenticated,
	"RequestTimeTooSkewed":         provider.ErrUnauthenticated,
	"InvalidIdentityToken":         provider.ErrUnauthenticated,
	"IDPRejectedClaim":             provider.ErrUnauthenticated,
	"IDPCommunicationError":        provider.ErrUnavailable,
	"InvalidAuthorizationMessage":  provider.ErrUnauthenticated,
	"OptInRequired":                provider.ErrPermissionDenied,
	"Blocked":                      provider.ErrPermissionDenied,
	"PendingVerification":          provider.ErrPermissionDenied,
	"UnauthorizedOperation":        provider.ErrPermissionDenied,
	"AccessDenied":                 provider.ErrPermissionDenied,
	"OperationNotPermitted":        provider.ErrPermissionDenied,
	"IdempotentParameterMismatch":  provider.ErrAlreadyExists,
	"IdempotentInstanceTerminated": provider.ErrAlreadyExists,

	"RequestLimitExceeded":   provider.ErrUnavailable,
	"Throttling":             provider.ErrUnavailable,
	"ThrottlingException":    provider.ErrUnavailable,
	"RequestThrottled":       provider.ErrUnavailable,
	"ServiceUnavailable":     provider.ErrUnavailable,
	"Unavailable":            provider.ErrUnavailable,
	"InternalError":          provider.ErrUnavailable,
	"InternalFailure":        provider.ErrUnavailable,
	"ServerInternal":         provider.ErrUnavailable,
	"IncorrectInstanceState": provider.ErrUnavailable, // not in its present state
	"IncorrectState":         provider.ErrUnavailable,
	"ResourceCountExceeded":  provider.ErrQuota,

	"VolumeInUse":                                provider.ErrInUse,
	"InvalidSnapshot.InUse":                      provider.ErrInUse,
	"IncorrectModificationState":                 provider.ErrUnavailable,
	"VolumeModificationRateExceeded":             provider.ErrUnavailable,
	"ConcurrentSnapshotLimitExceeded":            provider.ErrUnavailable,
	"SnapshotCreationPerVolumeRateLimitExceeded": provider.ErrUnavailable,

	"ServiceQuotaExceeded": provider.ErrQuota, // EBS direct APIs, "Error messages"; those below too
	"TooManyRequests":      provider.ErrUnavailable,
	"InternalServer":       provider.ErrUnavailable,
	"Service":              provider.ErrUnavailable,
	"Conflict":             provider.ErrAlreadyExists,
	"Validation":           provider.ErrInvalidArgument,
	"InvalidSignature":     provider.ErrUnauthenticated,
	"NoSuchResource":       provider.ErrNotFound,

	"InvalidAMIName.Duplicate":  provider.ErrAlreadyExists,
	"Unsupported":               provider.ErrInvalidArgument, // except for zones, see classOfError
	"UnsupportedOperation":      provider.ErrInvalidArgument,
	"MissingParameter":          provider.ErrInvalidArgument,
	"UnknownParameter":          provider.ErrInvalidArgument,
	"InvalidAction":             provider.ErrInvalidArgument,
	"InvalidInput":              provider.ErrInvalidArgument,
	"InvalidUserData.Malformed": provider.ErrInvalidArgument,
}

// classOfError distinguishes a zone that lacks a type, which another zone may have, from
// a configuration that the type supports nowhere: the code is the same.
func classOfError(api smithy.APIError) error {
	if api.ErrorCode() == "Unsupported" && strings.Contains(api.ErrorMessage(), "Availability Zone") {
		return provider.ErrCapacity
	}
	return classOf(api.ErrorCode())
}

// classOf returns the class of an error code. Those of EBS' own service and of
// Service Quotas end with Exception.
func classOf(code string) error {
	class, known := classes[code]
	if !known {
		code = strings.TrimSuffix(code, "Exception")
		class, known = classes[code]
	}
	switch {
	case known:
		return class
	case strings.Contains(code, "NotFound"): // InvalidSubnetID.NotFound, InvalidLaunchTemplateName.NotFoundException
		return provider.ErrNotFound
	case strings.HasSuffix(code, "LimitExceeded"):
		return provider.ErrQuota
	case strings.HasPrefix(code, "Invalid"): // InvalidParameterValue, InvalidAMIID.Malformed
		return provider.ErrInvalidArgument
	}
	return nil
}

// classify gives an error of the cloud, the connection or the context its
// class and says what was being done. An error that has a class keeps it.
func classify(what string, err error) error {
	if err == nil {
		return nil
	}
	class := provider.ErrUnavailable // no reply: it may have been carried out
	var api smithy.APIError
	switch {
	case provider.Class(err) != provider.ErrUnknown:
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.As(err, &api):
		if class = classOfError(api); class == nil && api.ErrorFault() == smithy.FaultServer {
			class = provider.ErrUnavailable
		}
		class = cmp.Or(class, provider.ErrUnknown)
		if class == provider.ErrPermissionDenied {
			what += ": the credentials lack " + actionOf(err)
		}
	case failure.Untrusted(err):
		return fmt.Errorf("%s: %w: %w", what, bad("aws-ca-bundle", "the server's certificate is not trusted"), err)
	}
	return fmt.Errorf("%s: %w: %w", what, class, err)
}

// actionOf returns the IAM action of the call that failed: the innermost, such
// as that by which credentials were to be had.
func actionOf(err error) string {
	action := "a permission"
	var call *smithy.OperationError
	for errors.As(err, &call) {
		action = strings.ToLower(strings.ReplaceAll(call.ServiceID, " ", "")) + ":" + call.OperationName
		err = call.Err
	}
	return action
}

// isCode reports whether the cloud answered with one of these codes.
func isCode(err error, codes ...string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode())
}

// unless returns err if it has not this code.
func unless(err error, code string) error {
	if isCode(err, code) {
		return nil
	}
	return err
}

// explain is deferred by the methods of the contract.
func explain(err *error, format string, args ...any) {
	*err = classify(fmt.Sprintf(format, args...), *err)
}

// refused reports whether the cloud has answered that it did not do what it was
// asked: nothing was made.
func refused(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	class := classOfError(api)
	return class != nil && class != provider.ErrUnavailable
}

const notFoundInstance = "InvalidInstanceID.NotFound"
