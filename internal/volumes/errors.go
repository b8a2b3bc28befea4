// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
)

// Errors of requests that no class of package provider is for.
var (
	errPrecondition = errors.New("not now")
	errRange        = errors.New("out of range")
	errToken        = errors.New("invalid token")
	// errNoVolume means that no PersistentVolume of the driver is of the volume.
	errNoVolume = fmt.Errorf("%w: no PersistentVolume with a claim has the volumeHandle", provider.ErrUnavailable)
	// errInVM is what kubelet is told each minute of a volume of a pod in a VM.
	errInVM = fmt.Errorf("%w: the volume is mounted in the pod's VM: the node does not know how full it is", errPrecondition)
)

// invalid returns an error about an argument that can never succeed.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{provider.ErrInvalidArgument}, args...)...)
}

// codeOf are the codes of the CSI specification. Sidecars take UNAVAILABLE for "perhaps it goes on in
// the background": they ask again with the same name, and give nothing up.
var codeOf = map[error]codes.Code{
	provider.ErrInvalidArgument:  codes.InvalidArgument,
	provider.ErrNotFound:         codes.NotFound,
	provider.ErrAlreadyExists:    codes.AlreadyExists,
	provider.ErrInUse:            codes.FailedPrecondition,
	provider.ErrCapacity:         codes.ResourceExhausted,
	provider.ErrQuota:            codes.ResourceExhausted,
	provider.ErrUnauthenticated:  codes.Unauthenticated,
	provider.ErrPermissionDenied: codes.PermissionDenied,
	provider.ErrUnavailable:      codes.Unavailable,
	provider.ErrUnimplemented:    codes.Unimplemented,
	provider.ErrUnknown:          codes.Unavailable,
}

// codeFor returns the code of an error.
func codeFor(err error) codes.Code {
	switch {
	case errors.Is(err, errPrecondition):
		return codes.FailedPrecondition
	case errors.Is(err, errRange):
		return codes.OutOfRange
	case errors.Is(err, errToken):
		return codes.Aborted
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return codeOf[provider.Class(err)]
}

// wire returns what a client gets for an error.
func wire(err error) error {
	if err == nil {
		return nil
	}
	if _, is := status.FromError(err); is {
		return err
	}
	return status.Error(codeFor(err), redact.Foreign(err.Error()))
}

// missing reports whether there is no such thing, be it that the cloud cannot have given the id.
func missing(err error) bool {
	return errors.Is(err, provider.ErrNotFound) || errors.Is(err, provider.ErrInvalidArgument)
}
