// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// classify puts an error of the engine into its class.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	return fmt.Errorf("%w: %w", classOf(err), err)
}

func classOf(err error) error {
	var network net.Error
	switch {
	case strings.Contains(err.Error(), "permission denied while trying to connect"):
		return provider.ErrPermissionDenied
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), client.IsErrConnectionFailed(err):
		return provider.ErrUnavailable
	case errdefs.IsNotFound(err):
		return provider.ErrNotFound
	case errdefs.IsInvalidArgument(err):
		return provider.ErrInvalidArgument
	case errdefs.IsConflict(err), errdefs.IsAlreadyExists(err):
		return provider.ErrAlreadyExists
	case errdefs.IsUnauthorized(err):
		return provider.ErrUnauthenticated
	case errdefs.IsPermissionDenied(err):
		return provider.ErrPermissionDenied
	case errdefs.IsInternal(err) && strings.Contains(err.Error(), "no space left"):
		return provider.ErrCapacity
	case errors.As(err, &network), errdefs.IsUnavailable(err), errdefs.IsInternal(err):
		return provider.ErrUnavailable
	}
	return provider.ErrUnknown
}
