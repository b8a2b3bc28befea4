// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/outrigger/outrigger/provider"
)

// ErrNotConfigured is the error of a call to a configuration that the plugin
// does not have, as after its restart: [Configure] makes it. Its class is
// provider.ErrUnavailable, since the same call succeeds afterwards.
var ErrNotConfigured = errors.New("not configured")

// classes are what an error can be. The first that fits gives code and
// reason, and of several with one code, the first is that of a plain status.
var classes = []struct {
	err    error
	reason string
	code   codes.Code
}{
	{ErrNotConfigured, "NOT_CONFIGURED", codes.FailedPrecondition},
	{provider.ErrInvalidArgument, "INVALID_ARGUMENT", codes.InvalidArgument},
	{provider.ErrNotFound, "NOT_FOUND", codes.NotFound},
	{provider.ErrAlreadyExists, "ALREADY_EXISTS", codes.AlreadyExists},
	{provider.ErrInUse, "IN_USE", codes.FailedPrecondition},
	{provider.ErrQuota, "QUOTA", codes.ResourceExhausted},
	{provider.ErrCapacity, "CAPACITY", codes.ResourceExhausted},
	{provider.ErrUnauthenticated, "UNAUTHENTICATED", codes.Unauthenticated},
	{provider.ErrPermissionDenied, "PERMISSION_DENIED", codes.PermissionDenied},
	{provider.ErrUnavailable, "UNAVAILABLE", codes.Unavailable},
	{provider.ErrUnimplemented, "UNIMPLEMENTED", codes.Unimplemented},
	{provider.ErrUnknown, "UNKNOWN", codes.Unknown},
}

// alsoKey is where the metadata of an ErrorInfo has the further classes.
const alsoKey = "also"

// toStatus returns err as the error of a gRPC method whose context is ctx. An
// instance that was made all the same goes with it.
func toStatus(ctx context.Context, err error, partial *provider.Instance) error {
	code, reasons := codes.Unknown, []string{}
	for _, class := range classes {
		if !errors.Is(err, class.err) {
			continue
		}
		if len(reasons) == 0 {
			code = class.code
		}
		reasons = append(reasons, class.reason)
	}
	if len(reasons) == 0 {
		reasons = []string{"UNKNOWN"}
	}
	// Client and server keep the same deadline, and the server may see it
	// first. Only the code tells the client that this is how it ended.
	if ended := ctx.Err(); ended != nil {
		code = status.FromContextError(ended).Code()
	}
	info := &errdetails.ErrorInfo{Reason: reasons[0], Domain: ErrorDomain}
	if len(reasons) > 1 {
		info.Metadata = map[string]string{alsoKey: strings.Join(reasons[1:], ",")}
	}
	return withDetails(status.New(code, clipped(err.Error())), info, partial)
}

func withDetails(s *status.Status, info *errdetails.ErrorInfo, partial *provider.Instance) error {
	details := []protoadapt.MessageV1{info}
	if partial != nil {
		details = append(details, protoadapt.MessageV1Of(instanceToWire(partial)))
	}
	full, err := s.WithDetails(details...)
	if err != nil { // an instance that is not UTF-8
		full, _ = s.WithDetails(info)
	}
	return full.Err()
}

// clipped returns the part of a text that fits into a header.
func clipped(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + " (cut)"
	}
	return text
}

// remoteError is an error that the plugin answered. Its text is the original.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }

// errorInfo finds what a peer that knows the contract says of the error.
func errorInfo(s *status.Status) *errdetails.ErrorInfo {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == ErrorDomain {
			return info
		}
	}
	return nil
}

// classesOf returns the errors that info stands for.
func classesOf(info *errdetails.ErrorInfo) []error {
	reasons := append([]string{info.Reason}, strings.Split(info.Metadata[alsoKey], ",")...)
	var errs []error
	for _, class := range classes {
		if slices.Contains(reasons, class.reason) {
			errs = append(errs, class.err)
		}
	}
	if len(errs) == 0 { // a class of a later contract
		errs = append(errs, provider.ErrUnknown)
	}
	if errs[0] == ErrNotConfigured {
		errs = append(errs, provider.ErrUnavailable)
	}
	return errs
}

// classOfCode returns the class nearest to the code of a plain status.
func classOfCode(code codes.Code) error {
	switch code {
	case codes.OutOfRange:
		return provider.ErrInvalidArgument
	case codes.Aborted, codes.DeadlineExceeded, codes.Canceled:
		return provider.ErrUnavailable
	case codes.FailedPrecondition: // neither ErrNotConfigured nor ErrInUse: those have an ErrorInfo
		return provider.ErrUnknown
	}
	for _, class := range classes {
		if class.code == code {
			return class.err
		}
	}
	return provider.ErrUnknown
}
